//! Graph to joint forward and backward graphs (a later stage; its place is kept).
