"""Engine: what a graph can do. The façade, and the verbs that lower to a publish plan."""
