//! Frame to trace: graph, guards, effects, exit.
