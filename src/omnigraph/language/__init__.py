"""Language: `.pg` and `.gq` as text, trees and diagnostics. Imports base only; no I/O, no storage."""
