//! The client: frame entry, snapshot, guard evaluator, plan executor.
