//! Graphs that leave as FX: the `torch.fx.GraphModule` is rebuilt from ours, given to the chosen back end, and what that
//! returns is kept, one callable for each set of sizes.

use crate::run::Failure;
use crate::run::Outputs;
use crate::run::args::Template;
use crate::run::eager;
use crate::run::failure;
use flambeau_ir::dim::SymId;
use flambeau_ir::graph::{Effect, Graph, Node, NodeOp, Target};
use flambeau_ir::source::SourceId;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::cell::RefCell;
use std::collections::HashMap;

/// A graph that a back end compiles at its first run.
pub struct FxBody {
    graph: Graph,
    /// Slot of each placeholder's value.
    inputs: Vec<usize>,
    backend: Py<PyAny>,
    commits: bool,
    /// The symbols that the graph depends on.
    symbols: Vec<SymId>,
    compiled: RefCell<HashMap<Vec<i64>, Py<PyAny>>>,
}

impl FxBody {
    /// Nothing is compiled yet: the back end is user code.
    pub fn new(graph: &Graph, backend: Py<PyAny>, slot: &dyn Fn(SourceId) -> usize) -> FxBody {
        let inputs = graph.nodes.iter().filter_map(|node| match node.op {
            NodeOp::Placeholder(source) => Some(slot(source)),
            NodeOp::Call { .. } => None,
        });
        let commits = graph.nodes.iter().any(|node| matches!(node.effect, Effect::Draws | Effect::Commits));
        let symbols = graph.symbols().into_iter().collect();
        FxBody {
            graph: graph.clone(),
            inputs: inputs.collect(),
            backend,
            commits,
            symbols,
            compiled: RefCell::default(),
        }
    }

    /// What a callable of the back end was made for.
    fn key(&self, symbols: &[i64]) -> Vec<i64> {
        self.symbols.iter().map(|id| symbols[id.0 as usize]).collect()
    }

    /// Whether a run, once done, cannot be taken back.
    pub fn commits(&self) -> bool {
        self.commits
    }

    /// Whether the next run with these symbols calls the back end first.
    pub fn needs_compile(&self, symbols: &[i64]) -> bool {
        !self.compiled.borrow().contains_key(&self.key(symbols))
    }

    /// Lets the back end compile the graph for these inputs.
    pub fn compile(&self, py: Python<'_>, values: &[Option<Py<PyAny>>], symbols: &[i64]) -> Result<(), Failure> {
        let compiled = self.call_backend(py, values, symbols).map_err(|e| match failure(py, e, false) {
            Failure::Before(why) | Failure::Raised(why) => {
                Failure::Before(format!("the back end refused the graph: {why}"))
            }
            other => other,
        })?;
        self.compiled.borrow_mut().insert(self.key(symbols), compiled);
        Ok(())
    }

    fn call_backend(&self, py: Python<'_>, values: &[Option<Py<PyAny>>], symbols: &[i64]) -> PyResult<Py<PyAny>> {
        let module = graph_module(py, &self.graph, symbols)?;
        let examples = PyList::new(py, self.examples(values))?;
        let examples = py.import("flambeau._examples")?.call_method1("stand_ins", (examples,))?;
        let compiled = self.backend.bind(py).call1((module, examples))?;
        if !compiled.is_callable() {
            return Err(PyTypeError::new_err("the back end returned nothing that can be called"));
        }
        Ok(compiled.unbind())
    }

    fn examples<'a>(&'a self, values: &'a [Option<Py<PyAny>>]) -> impl ExactSizeIterator<Item = &'a Option<Py<PyAny>>> {
        self.inputs.iter().map(|slot| &values[*slot])
    }

    /// Runs the compiled graph, and gives its outputs.
    pub fn run(
        &self,
        py: Python<'_>,
        values: &[Option<Py<PyAny>>],
        symbols: &[i64],
        outputs: &mut Outputs,
    ) -> Result<(), Failure> {
        let compiled = self.compiled.borrow().get(&self.key(symbols)).map(|c| c.clone_ref(py));
        let compiled = compiled.ok_or_else(|| Failure::Before("the back end was not asked for these sizes".into()))?;
        let mut call = || -> PyResult<()> {
            let given = compiled.bind(py).call1(PyTuple::new(py, self.examples(values))?)?;
            for output in given.try_iter()? {
                outputs.push(output?.unbind());
            }
            Ok(())
        };
        call().map_err(|e| failure(py, e, self.commits))?;
        if outputs.len() == self.graph.outputs.len() {
            return Ok(());
        }
        let wrong = PyTypeError::new_err(format!(
            "the back end's callable returned {} values for {} outputs",
            outputs.len(),
            self.graph.outputs.len()
        ));
        Err(failure(py, wrong, self.commits))
    }
}

/// The graph as a `torch.fx.GraphModule` whose placeholders are our inputs, in order.
fn graph_module<'py>(py: Python<'py>, graph: &Graph, symbols: &[i64]) -> PyResult<Bound<'py, PyAny>> {
    let fx = py.import("torch.fx")?;
    let built = fx.getattr("Graph")?.call0()?;
    let mut nodes: Vec<Option<Py<PyAny>>> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let made = add_node(py, &built, node, &nodes, symbols)?;
        nodes.push(Some(made));
    }
    let outputs: Vec<_> = graph.outputs.iter().map(|id| nodes[id.0 as usize].as_ref()).collect();
    built.call_method1("output", (PyTuple::new(py, outputs)?,))?;
    built.call_method0("lint")?;
    let root = py.import("torch.nn")?.getattr("Module")?.call0()?;
    fx.getattr("GraphModule")?.call1((root, built))
}

fn add_node(
    py: Python<'_>,
    graph: &Bound<'_, PyAny>,
    node: &Node,
    nodes: &[Option<Py<PyAny>>],
    symbols: &[i64],
) -> PyResult<Py<PyAny>> {
    let (kind, target, args, named) = match &node.op {
        NodeOp::Placeholder(_) => {
            ("placeholder", pyo3::types::PyString::new(py, &node.name).into_any().unbind(), PyTuple::empty(py), None)
        }
        NodeOp::Call { target, args, kwargs } => {
            let make = |arg| Template::new(py, arg)?.make(py, nodes, symbols);
            let positional = args.iter().map(make).collect::<PyResult<Vec<_>>>()?;
            let named = PyDict::new(py);
            for (name, value) in kwargs {
                named.set_item(&**name, make(value)?)?;
            }
            let (kind, object) = match target {
                Target::Function(_) => ("call_function", eager::callable(py, target)?),
                Target::Method(name) => ("call_method", pyo3::types::PyString::new(py, name).into_any().unbind()),
            };
            (kind, object, PyTuple::new(py, positional)?, Some(named))
        }
    };
    let kwargs = named.unwrap_or_else(|| PyDict::new(py));
    Ok(graph.call_method1("create_node", (kind, target, args, kwargs, &node.name))?.unbind())
}
