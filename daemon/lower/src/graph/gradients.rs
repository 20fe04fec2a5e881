//! `backward()` in a graph: the gradients of leaves, computed in the graph itself.

use crate::graph::follow::behind;
use crate::graph::functional::{Lowering, Value};
use flambeau_core::graph::{CoreId, CoreNode, CoreOp};
use flambeau_ir::code::Const;
use flambeau_ir::graph::{Arg, Node, NodeId, ValueMeta};
use flambeau_ir::reason::Reason;
use flambeau_ops::decompose::refuse;

impl Lowering<'_> {
    /// What [`flambeau_ir::graph::GRADIENTS`] gives for these arguments.
    pub fn gradients(&mut self, node: &Node, args: &[Arg]) -> Result<Value, Reason> {
        let ([Arg::Node(of), seed, Arg::List(leaves), keeps], ValueMeta::Tuple(metas)) = (args, &node.meta) else {
            return refuse("gradients of what is no tensor");
        };
        let (base, value) = self.present(*of)?;
        let seed = match seed {
            Arg::Const(Const::None) => None,
            Arg::Node(seed) => Some(self.present(*seed)?.1),
            _ => return refuse("a gradient that is no tensor"),
        };
        let Some(follow) = &self.follow else { return refuse("gradients of what autograd does not follow") };
        let reached = follow.reached(base);
        let inputs: Vec<bool> = self.followed_inputs();
        let mut places = Vec::new();
        for leaf in leaves {
            let Arg::Node(leaf) = leaf else { return refuse("a leaf that is no tensor") };
            let (base, _) = self.present(*leaf)?;
            match self.bases[base].input {
                Some(input) => places.push(input),
                None => return refuse("a leaf that the graph made"),
            }
        }
        let found = flambeau_derive::within(&mut self.core, &inputs, (value, seed), &reached)?;
        if *keeps == Arg::Const(Const::Bool(false)) {
            let freed = behind(self.graph, *of);
            self.follow.iter_mut().for_each(|follow| follow.free(&freed));
        }
        let each = places.iter().zip(metas).map(|(place, meta)| match (found.get(place), meta) {
            (Some(gradient), ValueMeta::Tensor(meta)) => {
                let CoreNode { dtype, sizes, .. } = self.core.node(*gradient).clone();
                let end = self.core.push(CoreOp::Stop(*gradient), dtype, sizes);
                self.fresh(end, meta)
            }
            _ => refuse("a leaf that the graph does not connect with what its gradient is of"),
        });
        Ok(Value::Tuple(each.collect::<Result<_, _>>()?))
    }

    /// The memory of a tensor, and its value now.
    fn present(&mut self, of: NodeId) -> Result<(usize, CoreId), Reason> {
        match self.values[of.0 as usize].clone() {
            Value::Tensor { base, views, severed: false, .. } => Ok((base, self.read(base, &views))),
            _ => refuse("a gradient of or by a tensor that shares memory only"),
        }
    }
}
