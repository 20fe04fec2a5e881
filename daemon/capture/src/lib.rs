//! Wire snapshot to checked frame.
