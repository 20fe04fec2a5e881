//! The state of one trace: sources, guards, questions, arenas, the graph under construction.

use super::autocast::Autocast;
use super::broken::{Broken, Forced, Mortals, Place};
use super::graph::GraphBuilder;
use super::library::Library;
use super::own_keys::OwnKeys;
use super::texts::Texts;
use crate::value::flow::{Flow, internal, stop};
use crate::value::frame::FrameInfo;
use crate::value::parts::SLICE;
use crate::value::{Arenas, Args, CellId, Class, DictId, Key, Origin, Value};
use flambeau_bytecode::Decoded;
use flambeau_bytecode::dialect::Dialect;
use flambeau_ir::code::{CodeHash, Const};
use flambeau_ir::dim::SymId;
use flambeau_ir::frame::Frame;
use flambeau_ir::guard::{Ambient, Guard, GuardKind};
use flambeau_ir::object::{Heap, ObjId, Object};
use flambeau_ir::oracle::{Answer, AnswerValue, Oracle, Plain, Question};
use flambeau_ir::plan::{IndexCheck, Symbol};
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_ir::source::{CallKey, SourceId, SourceTable, Step};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Calls of built-ins on constants that one trace asks the client for.
const MAX_EVALS: usize = 1024;

/// A call of a function with an `lru_cache`.
pub(crate) struct Recalled {
    pub function: Origin,
    pub args: Args,
    /// What the trace found out that it gives, which the cache did not keep yet, with the arguments as the cache knows them.
    pub found: Option<(CallKey<Origin>, Value)>,
}

/// An attribute of a class from outside that the trace set.
#[derive(Clone)]
pub(crate) struct Written {
    pub class: Rc<Class>,
    pub name: Arc<str>,
    pub value: Value,
}

/// The state of one trace.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Tracer<'a> {
    pub(crate) frame: &'a Frame,
    oracle: &'a mut dyn Oracle,
    /// The built-in functions and types.
    pub(crate) library: &'static dyn Library,
    pub(crate) heap: Heap,
    pub(crate) sources: SourceTable,
    pub(crate) guards: Vec<Guard>,
    pub(crate) guarded: HashSet<(SourceId, GuardKind)>,
    /// Lists, dicts, instances, tensors, ...
    pub arenas: Arenas,
    /// The graph so far.
    pub(crate) graph: GraphBuilder,
    pub(crate) symbols: Vec<Symbol>,
    /// The simulated ambient state: grad mode, autocast, default dtype.
    pub ambient: Ambient,
    /// What the trace knows of autocast.
    pub(crate) autocast: Autocast,
    /// Inlined frames, outermost first, for locations and limits.
    pub(crate) stack: Vec<FrameInfo>,
    /// The value of each outside object met, with its first source.
    pub(crate) known: HashMap<ObjId, (Value, SourceId)>,
    /// Which object from outside a constant is, and where; `None` if it is several. It leaves the frame as itself.
    /// Strings are told apart by `texts`.
    pub(crate) const_objects: HashMap<Const, Option<(ObjId, SourceId)>>,
    /// Outside objects that are keys by their identity, by where they were met first: no two may be one another time.
    pub(crate) keyed: HashMap<ObjId, SourceId>,
    /// Comparisons in progress.
    pub(crate) comparing: usize,
    /// Containers whose text is being made, outermost first.
    pub(crate) represented: Vec<Value>,
    /// What `id` was asked for.
    pub(crate) addressed: Vec<Value>,
    pub(crate) own_keys: OwnKeys,
    /// Code is traced that the graph calls as a whole.
    pub(crate) in_one_call: bool,
    /// Keys were ids of objects, and numbers that ids could be equal to.
    address_and_large_keys: (bool, bool),
    /// What the client's built-ins gave for constants.
    evals: HashMap<(String, Vec<Plain>, Vec<Arc<str>>), AnswerValue>,
    pub(super) texts: Texts,
    pub(crate) classes: HashMap<ObjId, Rc<Class>>,
    pub(crate) dicts: HashMap<ObjId, DictId>,
    pub(crate) cells: HashMap<ObjId, CellId>,
    pub(crate) type_attrs: HashMap<(ObjId, Arc<str>), Option<(Rc<Class>, Value)>>,
    pub(crate) raw_types: HashMap<(ObjId, Arc<str>), Option<(ObjId, ObjId)>>,
    pub(crate) dict_items: HashMap<(ObjId, Const), Option<ObjId>>,
    pub(crate) decoded: HashMap<CodeHash, Rc<Decoded>>,
    /// The version that the code is of, once some was decoded.
    pub(crate) dialect: Option<&'static Dialect>,
    pub(crate) prefetched: HashSet<(CodeHash, Option<ObjId>)>,
    pub(crate) modules: HashMap<Arc<str>, Value>,
    pub(crate) trusted: HashMap<&'static str, Rc<Class>>,
    /// What [`Tracer::real_class`] found, by path.
    pub(crate) real_classes: HashMap<Option<Arc<str>>, Rc<Class>>,
    /// Tensor inputs, with the number of their storage in the snapshot.
    pub(crate) inputs: Vec<(Origin, u32)>,
    /// Storages of inputs that autograd saw written to: views of them may be unusable since.
    pub(crate) written: HashSet<u32>,
    /// Storages of inputs that began or ceased to require grad: views of them may have, too.
    pub(crate) regraded: HashSet<u32>,
    /// Names of the root frame's slots.
    pub(crate) root_names: Vec<String>,
    /// Where the last exception was raised.
    pub(crate) raised_at: Vec<flambeau_ir::graph::Location>,
    pub(crate) builtin_classes: HashMap<&'static str, Rc<Class>>,
    /// A line per instruction, where asked for.
    pub(crate) log: Vec<String>,
    /// Exceptions whose message is not the one Python gives, and the number of the instruction that raised them.
    pub(crate) inexact: HashMap<u32, usize>,
    /// The latest instruction for which an instance of a subclass of `int`, `str` and the like was its constant.
    pub(crate) flattened: Cell<usize>,
    /// Instructions run so far.
    pub(crate) executed: usize,
    /// The exception being handled, innermost last (`sys.exc_info()`).
    pub(crate) handling: Vec<Value>,
    /// Frames begun or resumed so far.
    pub(crate) frames_run: usize,
    /// The call in progress gives its caller's instruction the result as it is.
    pub(crate) direct: bool,
    /// Regions as `error_on_graph_break` and `disable_nested_graph_breaks` have them now.
    pub(crate) error_on_break: bool,
    pub(crate) nested_breaks: bool,
    /// Why `backward()` cannot be in the graph, and breaks.
    pub(crate) leaves_backward: Option<Reason>,
    /// Why regions of activation checkpointing cannot be in the graph, and break.
    pub(crate) leaves_checkpoints: Option<Reason>,
    /// Frames of Python's stack were asked for, by who may read their locals.
    pub(crate) frames_read: bool,
    /// The frame is that of a resume function.
    pub(crate) resuming: bool,
    /// Where this attempt has to break.
    pub(crate) forced: Option<Forced>,
    /// It did, and leaves the rest of the frame to plain Python.
    pub(crate) leaves_rest: bool,
    /// Where this attempt may be followed by one that leaves the rest.
    pub(crate) places: Vec<Place>,
    /// Nodes of the graph that were looked at for them.
    pub(crate) nodes_seen: usize,
    /// Calls of functions with an `lru_cache`, in order.
    pub(crate) recalled: Vec<Recalled>,
    /// Functions with an `lru_cache` that plain Python calls where no result is kept.
    pub(crate) left_to_python: HashSet<ObjId>,
    /// Attributes of classes from outside that were set, in order.
    pub(crate) class_writes: Vec<Written>,
    /// Namespaces of classes that proxies show.
    pub(crate) shown_namespaces: HashSet<DictId>,
    /// The instruction that made what cannot leave the frame, where plain Python could make it as well.
    pub(crate) unmade: Option<usize>,
    /// The frames of the latest break.
    pub(crate) broken: Option<Broken>,
    /// What was read of the values that a resume function is handed, by source.
    pub(crate) reads: HashMap<SourceId, Value>,
    /// Ints (of the options' dynamic dims) that sizes are made of.
    pub(crate) sized: HashSet<usize>,
    /// Which of the options' dynamic dims are constants after all, as an op has no rule for others.
    pub(crate) fixed: HashSet<usize>,
    /// What has to hold for the graph to run.
    pub(crate) indices: Vec<IndexCheck>,
    /// Something became known that the trace should have begun with: the frame is to be traced again.
    pub(crate) has_learnt: bool,
    /// The options' dynamic dims that symbols stand for.
    pub(crate) varying: HashMap<SymId, usize>,
    /// Plain Python asks a tensor of this trace what only torch's own calls leave in it: the graph runs op by op.
    pub(crate) exact: bool,
    /// Instances whose end runs user code, where this frame may be what ends them.
    pub(crate) mortals: Mortals,
    /// How many values were looked at for them.
    pub(crate) looked_at: Cell<usize>,
    /// Those that ended with an inlined frame whose caller has not looked yet.
    pub(crate) ended: Mortals,
}

impl<'a> Tracer<'a> {
    /// A trace about to begin.
    pub fn new(frame: &'a Frame, oracle: &'a mut dyn Oracle, library: &'static dyn Library) -> Self {
        let tracer = Tracer {
            frame,
            oracle,
            library,
            heap: frame.heap.clone(),
            sources: SourceTable::default(),
            guards: Vec::new(),
            guarded: HashSet::new(),
            arenas: Arenas::default(),
            graph: GraphBuilder::default(),
            symbols: Vec::new(),
            ambient: frame.ambient.clone(),
            autocast: Autocast::default(),
            stack: Vec::new(),
            known: HashMap::new(),
            const_objects: HashMap::new(),
            keyed: HashMap::new(),
            comparing: 0,
            represented: Vec::new(),
            addressed: Vec::new(),
            own_keys: OwnKeys::default(),
            in_one_call: false,
            address_and_large_keys: (false, false),
            evals: HashMap::new(),
            texts: Texts::default(),
            classes: HashMap::new(),
            dicts: HashMap::new(),
            cells: HashMap::new(),
            type_attrs: HashMap::new(),
            raw_types: HashMap::new(),
            dict_items: HashMap::new(),
            decoded: HashMap::new(),
            dialect: None,
            prefetched: HashSet::new(),
            modules: HashMap::new(),
            trusted: HashMap::new(),
            real_classes: HashMap::new(),
            inputs: Vec::new(),
            written: HashSet::new(),
            regraded: HashSet::new(),
            root_names: Vec::new(),
            raised_at: Vec::new(),
            builtin_classes: HashMap::new(),
            log: Vec::new(),
            inexact: HashMap::new(),
            flattened: Cell::new(0),
            executed: 0,
            handling: Vec::new(),
            frames_run: 0,
            direct: false,
            error_on_break: frame.options.error_on_break,
            nested_breaks: frame.options.nested_breaks,
            leaves_backward: None,
            leaves_checkpoints: None,
            frames_read: false,
            resuming: false,
            forced: None,
            leaves_rest: false,
            places: Vec::new(),
            nodes_seen: 0,
            recalled: Vec::new(),
            left_to_python: HashSet::new(),
            class_writes: Vec::new(),
            shown_namespaces: HashSet::new(),
            unmade: None,
            broken: None,
            reads: HashMap::new(),
            sized: HashSet::new(),
            fixed: HashSet::new(),
            indices: Vec::new(),
            has_learnt: false,
            varying: HashMap::new(),
            exact: false,
            mortals: Mortals::new(),
            looked_at: Cell::new(0),
            ended: Mortals::new(),
        };
        tracer.learned()
    }

    /// A fresh trace of the same frame, that may have to break at an instruction. It knows all answers that were given.
    pub(crate) fn again(mut self, forced: Option<Forced>) -> Tracer<'a> {
        let facts = forced.as_ref().and_then(|forced| forced.rest).map(|symbols| self.facts(symbols));
        let mut tracer = Tracer::new(self.frame, self.oracle, self.library);
        if let Some((sources, guards)) = facts {
            tracer.sources = sources;
            guards.into_iter().for_each(|Guard { source, kind }| tracer.guard(source, kind));
        }
        tracer.heap = self.heap;
        tracer.dict_items = self.dict_items;
        tracer.raw_types = self.raw_types;
        tracer.evals = self.evals;
        tracer.forced = forced;
        tracer.sized = self.sized;
        tracer.left_to_python = self.left_to_python;
        tracer.fixed = self.fixed;
        tracer.exact = self.exact;
        tracer.leaves_backward = self.leaves_backward;
        tracer.leaves_checkpoints = self.leaves_checkpoints;
        tracer
    }

    fn learned(mut self) -> Self {
        self.learn();
        self
    }

    /// Takes over the answers that came unasked.
    fn learn(&mut self) {
        for item in std::mem::take(&mut self.heap.items) {
            self.dict_items.insert((item.dict, Const::Str(item.key)), item.value);
        }
        for lookup in std::mem::take(&mut self.heap.lookups) {
            self.raw_types.insert((lookup.class, lookup.name), lookup.found);
        }
    }

    /// Records a fact. Every guard of a trace is made here.
    pub(crate) fn guard(&mut self, source: SourceId, kind: GuardKind) {
        if flambeau_ir::mutated!("no_guard_of_constants") && matches!(kind, GuardKind::Equals(_)) {
            return;
        }
        if flambeau_ir::mutated!("no_guard_of_absence") && matches!(kind, GuardKind::NoItem(_)) {
            return;
        }
        if flambeau_ir::mutated!("no_guard_of_lengths") && matches!(kind, GuardKind::Len(_)) {
            return;
        }
        if self.guarded.insert((source, kind.clone())) {
            self.guards.push(Guard { source, kind });
        }
    }

    /// Whether this fact was recorded.
    pub(crate) fn has_guard(&self, source: SourceId, kind: &GuardKind) -> bool {
        self.guarded.contains(&(source, kind.clone()))
    }

    /// The source `step` of `base`.
    pub(crate) fn step(&mut self, base: SourceId, step: Step) -> SourceId {
        self.sources.intern(Some(base), step)
    }

    /// The source of the frame's function.
    pub(crate) fn function_source(&mut self) -> SourceId {
        self.sources.intern(None, Step::Function)
    }

    /// Asks the client. Descriptions that come with answers are added to the heap.
    pub(crate) fn ask(&mut self, questions: &[Question]) -> Flow<Vec<AnswerValue>> {
        let values = self.ask_ahead(questions)?;
        match values.iter().find_map(|v| if let AnswerValue::Refused(reason) = v { Some(reason) } else { None }) {
            Some(reason) => Err(reason.clone().into()),
            None => Ok(values),
        }
    }

    /// Asks what the trace may need later: a refusal is an answer, which matters when the question really comes up.
    pub(crate) fn ask_ahead(&mut self, questions: &[Question]) -> Flow<Vec<AnswerValue>> {
        let answers: Vec<Answer> = match self.oracle.ask(questions) {
            Ok(answers) if answers.len() == questions.len() => answers,
            Ok(_) => return stop(ReasonCode::Internal, "the client answered another number of questions"),
            Err(e) => return stop(ReasonCode::Internal, e.to_string()),
        };
        let mut values = Vec::with_capacity(answers.len());
        for answer in answers {
            self.heap.extend(answer.described);
            values.push(answer.value);
        }
        self.learn();
        Ok(values)
    }

    /// Asks one question.
    pub(crate) fn ask_one(&mut self, question: Question) -> Flow<AnswerValue> {
        let mut values = self.ask(&[question])?;
        Ok(values.remove(0))
    }

    /// Calls an allow-listed pure built-in of the client on constants; a Python exception it raises is raised in the trace.
    pub fn eval(&mut self, path: &str, args: Vec<Const>) -> Flow<Value> {
        self.eval_plain(path, args.into_iter().map(Plain::Const).collect(), vec![])
    }

    /// As [`Self::eval`] on plain values, the last of which have `names`.
    /// An answer takes a way to the client and back: in a loop of thousands plain Python is faster, and the call breaks.
    pub(crate) fn eval_plain(&mut self, path: &str, args: Vec<Plain>, names: Vec<Arc<str>>) -> Flow<Value> {
        let asked = (path.into(), args, names);
        let answer = match self.evals.get(&asked) {
            Some(known) => known.clone(),
            None if self.evals.len() >= MAX_EVALS => {
                return stop(
                    ReasonCode::UnsupportedCall,
                    format!("{path}, which the trace asked Python for too often"),
                );
            }
            None => {
                let (path, args, names) = asked.clone();
                let answer = self.ask_one(Question::Eval { path, args, names })?;
                self.evals.insert(asked, answer.clone());
                answer
            }
        };
        match answer {
            AnswerValue::Const(c) => Ok(self.constant(c)),
            AnswerValue::Made(made) => self.made(made),
            AnswerValue::Raised(class, message) if Self::is_exception(&class) => self.raise_folded(&class, &message),
            AnswerValue::Raised(class, _) => stop(ReasonCode::UnsupportedCall, format!("{path}, which raises {class}")),
            other => stop(ReasonCode::Internal, format!("unexpected answer {other:?}")),
        }
    }

    /// A new value.
    fn made(&mut self, made: Plain) -> Flow<Value> {
        flambeau_ir::bounds::check();
        let items = |tracer: &mut Self, items: Vec<Plain>| -> Flow<Vec<Value>> {
            items.into_iter().map(|item| tracer.made(item)).collect()
        };
        Ok(match made {
            Plain::Const(c) => self.constant(c),
            Plain::Object(of, maker, args) => {
                let args = items(self, args)?;
                let Some(kind) = self.library.kind(&of).filter(|kind| kind.is_pure()) else {
                    return internal(format!("a {of} is no pure object"));
                };
                Value::parts(kind.path(), Value::made_by(maker, args))
            }
            Plain::Tuple(parts) => Value::tuple(items(self, parts)?),
            Plain::List(parts) => {
                let parts = items(self, parts)?;
                self.new_list(parts)
            }
            Plain::Dict(parts) => {
                let mut pairs = Vec::with_capacity(parts.len());
                for (key, value) in parts {
                    pairs.push((self.constant(key), self.made(value)?));
                }
                self.new_dict(pairs)?
            }
        })
    }

    /// The description of an object, asked for if need be.
    pub(crate) fn describe(&mut self, object: ObjId) -> Flow<Arc<Object>> {
        if let Some(o) = self.heap.get(object) {
            return Ok(o.clone());
        }
        self.ask_one(Question::Describe(vec![object]))?;
        match self.heap.get(object) {
            Some(o) => Ok(o.clone()),
            None => stop(ReasonCode::Internal, format!("object {} was not described", object.0)),
        }
    }

    /// The canonical key of a hashable value.
    pub fn key(&mut self, value: &Value) -> Flow<Key> {
        if self.is_address_of_constant(value) {
            return stop(ReasonCode::UnsupportedObject, "the id of a constant as a key");
        }
        let key = self.plain_key(value)?;
        self.note_key(&key)?;
        // Of a tuple's items this was asked on the way. Types that are known by their path are no others.
        let object = if let Value::Address(of) = value { of } else { value };
        let fixed = matches!(object, Value::Class(class) if class.path.is_some());
        let by_identity = matches!(key, Key::Identity(..) | Key::Address(..)) && !fixed;
        if by_identity && let Some(origin) = self.origin_of(object) {
            self.keyed.entry(origin.object).or_insert(origin.source);
        }
        Ok(key)
    }

    /// Which numbers the ids among keys are is not known, so none may stand beside them that could be equal.
    pub(crate) fn note_key(&mut self, key: &Key) -> Flow<()> {
        let (address, large) = &mut self.address_and_large_keys;
        *address |= key.holds_address();
        *large |= key.may_be_address();
        if *address && *large {
            return stop(ReasonCode::UnsupportedObject, "the id of an object among keys that are large numbers");
        }
        Ok(())
    }

    fn plain_key(&mut self, value: &Value) -> Flow<Key> {
        flambeau_ir::bounds::check();
        match value {
            Value::List(_) | Value::Dict(_) => {
                let class = self.class_of(value)?;
                if class.is_python && self.type_lookup(&class, "__hash__")?.is_some_and(|(_, hash)| !hash.is_none()) {
                    return stop(ReasonCode::UnsupportedObject, format!("a {} as a key", class.name.qualname));
                }
                let name = self.type_name(value);
                return self.raise_named("TypeError", &format!("unhashable type: '{name}'"));
            }
            // Types of C compare and hash as they like, too (dates, patterns, weak references).
            Value::Instance(_) | Value::Opaque(_) => {
                let class = self.class_of(value)?;
                let hash = self.type_lookup(&class, "__hash__")?.map(|(_, hash)| hash);
                if hash.as_ref().is_some_and(Value::is_none) {
                    let name = self.type_name(value);
                    return self.raise_named("TypeError", &format!("unhashable type: '{name}'"));
                }
                // No two objects have one hash then, so none is compared.
                let by_identity =
                    matches!(&hash, Some(Value::Builtin(slot)) if &*slot.path == "builtins.object.__hash__");
                let methods: &[&str] = if by_identity { &[] } else { &["__eq__", "__hash__"] };
                for method in methods {
                    if let Some((owner, _)) = self.type_lookup(&class, method)?
                        && !owner.is("builtins.object")
                        && !(owner.path.is_some() && owner.derives("torch.nn.modules.module.Module"))
                        && !owner.is("enum.Enum")
                    {
                        if let Some(key) = self.own_key(value)? {
                            return Ok(key);
                        }
                        return stop(ReasonCode::UnsupportedObject, format!("a {} as a key", class.name.qualname));
                    }
                }
            }
            Value::Tuple(tuple) if tuple.class.as_ref().is_some_and(|c| c.is_python) => {
                let class = self.class_of(value)?;
                for method in ["__eq__", "__hash__"] {
                    if self.type_lookup(&class, method)?.is_some_and(|(owner, _)| owner.is_python) {
                        return stop(ReasonCode::UnsupportedObject, format!("a {} as a key", class.name.qualname));
                    }
                }
            }
            Value::Parts(parts) if self.kind_of(parts).is_pure() => {
                return stop(ReasonCode::UnsupportedObject, format!("a {} as a key", parts.of));
            }
            Value::Int(dim) => return Ok(Key::Const(Const::Int(self.fix(dim)))),
            Value::Class(class) => self.need_hash(class)?,
            _ => {}
        }
        if let Value::Tuple(tuple) = value {
            return tuple.items.iter().map(|item| self.key(item)).collect::<Flow<_>>().map(Key::Tuple);
        }
        if let Value::Set(id) = value
            && self.arenas.sets[*id].frozen
            && let Some(key) = self.as_const(value).as_ref().and_then(Key::of_const)
        {
            return Ok(key);
        }
        match Key::by_structure(value) {
            Some(key) => Ok(key),
            None => stop(ReasonCode::UnsupportedObject, format!("a {} as a key", self.type_name(value))),
        }
    }

    /// A class is hashed and compared by its metaclass, which a program may have written.
    pub(crate) fn need_hash(&mut self, class: &Rc<Class>) -> Flow<()> {
        let Some(origin) = class.origin.filter(|_| class.is_python) else { return Ok(()) };
        let meta = self.describe(origin.object)?.class;
        if self.describe(meta)?.path.is_some() {
            return Ok(());
        }
        let value = Value::Class(class.clone());
        let meta = self.class_of(&value)?;
        for method in ["__hash__", "__eq__"] {
            match self.type_lookup(&meta, method)? {
                Some((_, found)) if method == "__hash__" && found.is_none() => {
                    let message = format!("unhashable type: '{}'", self.type_name(&value));
                    return self.raise_named("TypeError", &message);
                }
                Some((owner, _)) if owner.path.is_none() => {
                    let what = format!("a class whose metaclass defines {method}, as a key");
                    return stop(ReasonCode::UnsupportedObject, what);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A constant as a value: tuples, frozensets and slices get values of their own kind.
    pub fn constant(&mut self, c: Const) -> Value {
        match c {
            Const::Tuple(items) => {
                let items = items.into_iter().map(|i| self.constant(i)).collect();
                Value::tuple(items)
            }
            Const::FrozenSet(items) => {
                let mut set = crate::value::SetValue { frozen: true, ..Default::default() };
                if items.len() > 1 {
                    // Constants have their elements in an order of their own.
                    set.history.made = crate::value::Made::Unknown;
                }
                for item in items {
                    if let Some(key) = Key::of_const(&item) {
                        let value = self.constant(item);
                        set.items.insert(key, value);
                    }
                }
                Value::Set(self.arenas.sets.push(set))
            }
            Const::Slice(parts) => {
                let parts = parts.map(|p| self.constant(p));
                Value::parts(SLICE, parts)
            }
            Const::Code(code) => Value::Code(code),
            other => Value::Const(other),
        }
    }

    /// The value as a constant, if it is one through and through (exact tuples, slices and frozensets of constants included).
    pub fn as_const(&self, value: &Value) -> Option<Const> {
        flambeau_ir::bounds::check();
        Some(match value {
            Value::Const(c) => c.clone(),
            Value::Tuple(t) if t.class.is_none() => {
                Const::Tuple(t.items.iter().map(|i| self.as_const(i)).collect::<Option<_>>()?)
            }
            Value::Parts(_) => {
                let [a, b, c] = value.as_slice()?;
                Const::Slice(Box::new([self.as_const(a)?, self.as_const(b)?, self.as_const(c)?]))
            }
            Value::Set(id) if self.arenas.sets[*id].frozen => {
                let items = self.arenas.sets[*id].items.values();
                Const::FrozenSet(items.map(|i| self.as_const(i)).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    /// `a is b`; `None` where Python itself leaves it open (equal constants that are not singletons).
    pub fn is_same(&self, a: &Value, b: &Value) -> Option<bool> {
        Some(match (a, b) {
            (Value::Const(x), Value::Const(y)) => {
                if x != y {
                    false
                } else if x.is_singleton() {
                    true
                } else {
                    return self.is_same_text(x, y);
                }
            }
            (Value::Int(_) | Value::Address(_), Value::Int(_) | Value::Address(_) | Value::Const(Const::Int(_)))
            | (Value::Const(Const::Int(_)), Value::Int(_) | Value::Address(_)) => {
                return None;
            }
            // Each call gives a view of its own; whether both are of one call is not known.
            (Value::DictView(x, a), Value::DictView(y, b)) if x == y && a == b => return None,
            (Value::Tensor(x), Value::Tensor(y)) => x == y,
            (Value::Tuple(x), Value::Tuple(y)) => {
                if Rc::ptr_eq(x, y) || same_origin(x.origin, y.origin) {
                    return Some(true);
                }
                // Python keeps equal constant tuples once, and the empty one.
                let constant = |v: &Value| self.as_const(v);
                return if constant(a).is_some() && constant(a) == constant(b) { None } else { Some(false) };
            }
            (Value::List(x), Value::List(y)) => x == y,
            (Value::Dict(x), Value::Dict(y)) => x == y,
            (Value::Set(x), Value::Set(y)) => x == y,
            (Value::Function(x), Value::Function(y)) => Rc::ptr_eq(x, y) || same_origin(x.origin, y.origin),
            (Value::Method(x), Value::Method(y)) => Rc::ptr_eq(x, y) || same_origin(x.origin, y.origin),
            (Value::Builtin(x), Value::Builtin(y)) => {
                Rc::ptr_eq(x, y) || x.receiver.is_none() && y.receiver.is_none() && x.path == y.path
            }
            (Value::Class(x), Value::Class(y)) if x.is(Class::SOME_ITERATOR) || y.is(Class::SOME_ITERATOR) => {
                return None;
            }
            (Value::Class(x), Value::Class(y)) => x.same(y),
            (Value::Instance(x), Value::Instance(y)) => x == y,
            (Value::Module(x), Value::Module(y)) => Rc::ptr_eq(x, y) || x.origin.object == y.origin.object,
            (Value::Cell(x), Value::Cell(y)) => x == y,
            (Value::Iter(x), Value::Iter(y)) => x == y,
            (Value::Generator(x), Value::Generator(y)) => x == y,
            (Value::Parts(x), Value::Parts(y)) => Rc::ptr_eq(x, y) || same_origin(x.origin, y.origin),
            (Value::Descriptor(x), Value::Descriptor(y)) => Rc::ptr_eq(x, y),
            // Which objects of the client's a code's content belongs to is not kept.
            (Value::Code(x), Value::Code(y)) => return (x.hash != y.hash).then_some(false),
            (Value::Code(_), Value::Opaque(o)) | (Value::Opaque(o), Value::Code(_)) => {
                return (&*o.class.name.qualname != "code").then_some(false);
            }
            (Value::Opaque(x), Value::Opaque(y)) => x.origin.object == y.origin.object,
            _ => false,
        })
    }
}

fn same_origin(a: Option<Origin>, b: Option<Origin>) -> bool {
    matches!((a, b), (Some(x), Some(y)) if x.object == y.object)
}
