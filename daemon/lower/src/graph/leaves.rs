//! Tensors of which a graph itself asks for the gradient: leaves that it makes, and others that stand out of what they are
//! computed of.

use crate::graph::functional::Lowering;
use crate::graph::value::Value;
use flambeau_core::graph::{CoreId, CoreNode, CoreOp};
use flambeau_ir::code::Const;
use flambeau_ir::graph::{ASKED, Arg, Graph, Node, NodeId, NodeOp, Target, ValueMeta};
use flambeau_ir::reason::Reason;
use flambeau_ir::tensor::is_dense;
use flambeau_ops::Mark;
use flambeau_ops::decompose::{bits_of, refuse};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The nodes of which the graph asks for gradients by name.
pub fn asked(graph: &Graph) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    for node in &graph.nodes {
        if let NodeOp::Call { target: Target::Function(path), args, .. } = &node.op
            && &**path == ASKED
            && let Some(inputs) = args.get(2)
        {
            inputs.nodes(&mut |id| _ = found.insert(id));
        }
    }
    found
}

impl Lowering<'_> {
    /// `tensor.data`
    pub fn data(&mut self, node: &Node, target: &Target, args: &[Arg]) -> Option<Value> {
        let (Target::Function(path), [Arg::Node(of), Arg::Const(Const::Str(name))]) = (target, args) else {
            return None;
        };
        if &**path != "builtins.getattr" || &**name != "data" {
            return None;
        }
        let (Value::Tensor { base, views, .. }, Some(meta)) = (&self.values[of.0 as usize], node.meta.as_tensor())
        else {
            return None;
        };
        self.uncounted.insert(NodeId(self.values.len() as u32));
        Some(Value::Tensor { base: *base, views: views.clone(), meta: meta.clone(), severed: true })
    }

    /// A call that makes a leaf, where autograd is followed: `requires_grad_()`, or one with `requires_grad=True`.
    pub fn leaf_made(
        &mut self,
        node: &Node,
        (target, args, kwargs): (&Target, &[Arg], &[(Arc<str>, Arg)]),
    ) -> Option<Result<Value, Reason>> {
        self.follow.as_ref()?;
        let meta = node.meta.as_tensor().filter(|meta| meta.requires_grad)?;
        let (Target::Function(name) | Target::Method(name)) = target;
        if flambeau_ops::known(name).is_some_and(|op| op.has(Mark::SetsGrad)) {
            let Some(Arg::Node(of)) = args.first() else { return None };
            let before = self.graph.node(*of).meta.as_tensor()?.requires_grad;
            return (!before).then(|| self.as_leaf(*of));
        }
        let is_switch =
            |(name, value): &(Arc<str>, Arg)| &**name == "requires_grad" && *value == Arg::Const(Const::Bool(true));
        let without: Vec<(Arc<str>, Arg)> = kwargs.iter().filter(|kwarg| !is_switch(kwarg)).cloned().collect();
        if without.len() == kwargs.len() {
            return None;
        }
        let mut plain = node.clone();
        plain.meta = ValueMeta::Tensor(flambeau_ir::tensor::TensorMeta { requires_grad: false, ..meta.clone() });
        let made = self.call(&plain, target, args, &without);
        Some(made.and_then(|value| self.with_leaf(value)))
    }

    /// Notes that a call gives the `data` of a tensor where it is given that.
    pub fn note_uncounted(&mut self, args: &[Arg], value: &Value) {
        if let Some(Arg::Node(of)) = args.first()
            && self.uncounted.contains(of)
            && value.base().is_some_and(|base| self.values[of.0 as usize].base() == Some(base))
        {
            self.uncounted.insert(NodeId(self.values.len() as u32));
        }
    }

    /// Has a tensor that a node of the graph made be a leaf from now on.
    fn as_leaf(&mut self, of: NodeId) -> Result<Value, Reason> {
        let own = self.apart(of)?;
        let value = self.with_leaf(own)?;
        self.values[of.0 as usize] = value.clone();
        Ok(value)
    }

    /// A tensor that was detached, apart from what it shares memory with.
    fn apart(&mut self, of: NodeId) -> Result<Value, Reason> {
        let Value::Tensor { base, views, meta, severed: true } = self.values[of.0 as usize].clone() else {
            return Ok(self.values[of.0 as usize].clone());
        };
        let now = NodeId(self.values.len() as u32);
        let shows = |id: &NodeId| *id != of && *id < now && self.values[id.0 as usize].base() == Some(base);
        let is_used = self.graph.nodes[now.0 as usize..].iter().any(|node| {
            let NodeOp::Call { args, kwargs, .. } = &node.op else { return false };
            let mut used = false;
            args.iter()
                .chain(kwargs.iter().map(|(_, arg)| arg))
                .for_each(|arg| arg.nodes(&mut |id| used |= shows(&id)));
            used
        });
        let is_seen = is_used || self.bases[base].input.is_some() || self.graph.outputs.iter().any(shows);
        if !is_dense(&meta.sizes, &meta.strides) {
            return refuse("a leaf that shows a part of a tensor");
        }
        let value = self.read(base, &views);
        let own = self.fresh(value, &meta)?;
        own.base().filter(|_| is_seen).into_iter().for_each(|made| self.share(made, &[base]));
        Ok(own)
    }

    fn with_leaf(&mut self, value: Value) -> Result<Value, Reason> {
        let Value::Tensor { base, views, mut meta, severed: false } = value else {
            return refuse("a leaf that shares memory");
        };
        if !views.is_empty() {
            return refuse("a leaf that shares memory");
        }
        let input = self.bases[base].input;
        self.follow.iter_mut().for_each(|follow| follow.connect(base, input));
        let point = self.distinct(self.bases[base].value, |_, id| CoreOp::Stop(id));
        self.follow.iter_mut().for_each(|follow| follow.set(point, true));
        self.bases[base].point = Some(point);
        meta.requires_grad = true;
        Ok(Value::Tensor { base, views, meta, severed: false })
    }

    /// Has a new tensor, of which a gradient is asked for, stand out of what it is computed of.
    pub fn stand_out(&mut self, value: &Value) -> Result<(), Reason> {
        let Value::Tensor { base, views, severed: false, .. } = value else {
            return refuse("a gradient by a tensor that shares memory");
        };
        if self.bases[*base].input.is_some() || !views.is_empty() {
            return refuse("a gradient by a tensor that shares memory");
        }
        if self.bases[*base].point.is_none() {
            let point = self.distinct(self.bases[*base].value, |lowering, id| lowering.sloped(id, id));
            self.bases[*base].point = Some(point);
        }
        Ok(())
    }

    /// The same value with another one's gradient.
    pub fn sloped(&mut self, value: CoreId, of: CoreId) -> CoreOp {
        let CoreNode { dtype, sizes, .. } = self.core.node(of).clone();
        let one = bits_of(&Const::Float(1.0), dtype).unwrap_or_default();
        let slope = self.core.push(CoreOp::Const(one), dtype, sizes);
        CoreOp::Sloped(value, of, slope)
    }

    /// A value made of this one that no other node of the graph is.
    fn distinct(&mut self, value: CoreId, op: impl Fn(&mut Self, CoreId) -> CoreOp) -> CoreId {
        let CoreNode { dtype, sizes, .. } = self.core.node(value).clone();
        let mut made = value;
        loop {
            let op = op(self, made);
            let known = self.core.nodes().len();
            made = self.core.push(op, dtype, sizes.clone());
            if made.0 as usize >= known {
                return made;
            }
        }
    }

    /// What stands for the tensor of a node where its gradient is asked for.
    pub fn point(&self, of: NodeId) -> Result<CoreId, Reason> {
        let Value::Tensor { base, views, severed: false, .. } = &self.values[of.0 as usize] else {
            return refuse("a gradient by a tensor that shares memory");
        };
        let held = &self.bases[*base];
        match held.point.or_else(|| held.input.and_then(|at| self.core.input_node(at))) {
            Some(point) if views.is_empty() => Ok(point),
            _ => refuse("a gradient by a tensor that shares memory"),
        }
    }
}
