//! Graph to joint forward and backward graphs: the training stage. It is not built yet, and nothing calls it.
//!
//! What will live here: a pure function from a [`flambeau_ir::graph::Graph`] whose inputs require grad to a *joint*
//! graph (forward calls, then the calls of its derivative, from the derivative entry each op has in `daemon/ops`), and
//! a partition of the joint graph into a forward part, a backward part and the values saved between them, chosen by
//! what costs less to keep than to compute again. Both parts are ordinary graphs: `daemon/lower` takes them as they are.
//!
//! Until then a graph with inputs that require grad runs op by op through torch under autograd
//! ([`flambeau_ir::plan::Body::Eager`]), which is right and is counted as `eager_graph`. What keeps the place open:
//! [`flambeau_core::trace::Trace::needs_autograd`] says which graphs come here, [`flambeau_ir::tensor::TensorMeta`]
//! carries `requires_grad` on every node, and plans name inputs by source, so that saved values can become inputs.
//! What may be used here: `flambeau-ir` and `flambeau-ops`, nothing else.
