"""Tables: one Lance dataset per type; staged effects become detached versions that nothing sees yet."""
