//! Built-in iterators. `Tracer::iter` makes them, `Tracer::next` advances them.

use super::{DictId, Id, ListId, Value};
use std::rc::Rc;

/// Names an iterator.
pub type IterId = Id<Iter>;

/// What an iterator over fixed values was made of.
#[derive(Clone, Debug)]
pub enum Of {
    /// Nothing that could be had again: a tuple of the values does as well.
    Items,
    /// `iter(value)`
    Value(Value),
    /// A call of the function or type at this path.
    Call(&'static str, Vec<Value>),
}

/// What an exhausted iterator was.
#[derive(Clone, Copy, Debug)]
pub enum Exhausted {
    /// Over a list.
    List,
    /// Over a tuple.
    Tuple,
    /// Over a set.
    Set,
    /// `reversed` of a list.
    Reversed,
    /// Over a dict's keys, values or items.
    Dict(super::ViewKind),
    /// `itertools.chain`
    Chain,
    /// `itertools.islice`
    Islice,
    /// `itertools.pairwise`
    Pairwise,
    /// `itertools.zip_longest`
    ZipLongest,
    /// `reversed` of a dict.
    ReversedDict,
    /// `reversed` of anything else.
    ReversedSequence,
    /// Over an object's `[0]`, `[1]`, ...
    Sequence,
    /// `iter(callable, sentinel)`
    CallUntil,
}

/// State of a built-in iterator.
#[derive(Clone, Debug)]
pub enum Iter {
    /// Over values fixed at creation (tuples, strings, reversed sequences, tensors unbound, ...).
    Items {
        /// The values.
        items: Vec<Value>,
        /// Next index.
        at: usize,
        /// What it is made of where it leaves the trace.
        of: Of,
    },
    /// Over a list, which may change meanwhile.
    List {
        /// The list.
        list: ListId,
        /// Next index.
        at: usize,
    },
    /// `reversed` of a list or other sequence, which may change meanwhile.
    Reversed {
        /// The sequence.
        of: Value,
        /// How many items are left, if it stays as it is.
        left: usize,
    },
    /// Over an object's `[0]`, `[1]`, ... until `IndexError`: the old sequence protocol.
    Sequence {
        /// The object.
        object: Value,
        /// Next index.
        at: usize,
    },
    /// Over a dict's keys, values or items; raises if its size changes.
    Dict {
        /// The dict.
        dict: DictId,
        /// What it yields.
        kind: super::ViewKind,
        /// Next index.
        at: usize,
        /// Its length at creation.
        len: usize,
        /// How many of its items had been deleted then.
        deleted: usize,
        /// What it yields, of a dict of hooks.
        hooks: Option<Rc<[Value]>>,
    },
    /// `range`, all ints constant.
    Range {
        /// Next value.
        next: i64,
        /// Step.
        step: i64,
        /// How many are left.
        left: u64,
    },
    /// `zip`
    Zip {
        /// Iterators.
        iters: Vec<Value>,
        /// `strict=True`
        strict: bool,
    },
    /// `enumerate`
    Enumerate {
        /// The iterator.
        iter: Value,
        /// Next index, an int.
        count: Value,
    },
    /// `map`
    Map {
        /// The function.
        func: Value,
        /// Iterators.
        iters: Vec<Value>,
    },
    /// `itertools.accumulate`
    Accumulate {
        /// The iterator.
        iter: Value,
        /// What adds; `None` is `+`.
        func: Option<Value>,
        /// The sum so far.
        total: Option<Value>,
        /// What is to come first of all.
        initial: Option<Value>,
    },
    /// `itertools.pairwise`
    Pairwise {
        /// The iterator.
        iter: Value,
        /// The second of the last pair.
        old: Option<Value>,
    },
    /// `itertools.zip_longest`
    ZipLongest {
        /// Iterators, without those that came to their end.
        iters: Vec<Option<Value>>,
        /// What stands for their items.
        fill: Value,
    },
    /// `filter`, and `itertools.filterfalse`
    Filter {
        /// The predicate, or `None`.
        func: Value,
        /// The iterator.
        iter: Value,
        /// Which truth value passes.
        keep: bool,
    },
    /// `itertools.chain`: an iterator of iterables, and the current one.
    Chain {
        /// Iterables to come.
        outer: Value,
        /// The iterator being drained.
        inner: Option<Value>,
    },
    /// `itertools.count`
    Count {
        /// Next value.
        next: Value,
        /// Step.
        step: Value,
    },
    /// `itertools.repeat`; `None`: for ever.
    Repeat {
        /// What it yields.
        value: Value,
        /// How often still.
        left: Option<u64>,
    },
    /// `itertools.islice`
    Islice {
        /// The iterator.
        iter: Value,
        /// Items to skip before the next one.
        skip: u64,
        /// Step between items.
        step: u64,
        /// Items left to take from `iter`; `None`: all.
        left: Option<u64>,
    },
    /// `iter(callable, sentinel)`
    CallUntil {
        /// The callable.
        func: Value,
        /// It ends when this is returned.
        sentinel: Value,
    },
    /// One that was there before the trace.
    Ahead(Ahead),
    /// One of C that a polyfill stands for.
    Polyfill(Polyfill),
    /// Exhausted, and rid of what it iterated over.
    Done(Exhausted),
    /// It is being advanced.
    Running,
}

/// An iterator of C whose items Python functions make.
#[derive(Clone, Debug)]
pub struct Polyfill {
    /// The class of these functions (`flambeau.polyfills._table.Kind`).
    pub kind: Value,
    /// The type of C.
    pub class: Rc<super::Class>,
    /// Its state, a list.
    pub state: Value,
    /// The number of the instruction that made it.
    pub made_at: usize,
    /// How many items it gave.
    pub given: usize,
}

/// A built-in iterator from outside, and how far the trace went. It is advanced itself where the frame ends.
#[derive(Clone, Debug)]
pub struct Ahead {
    /// Where it is from.
    pub origin: super::Origin,
    /// Its type.
    pub class: Rc<super::Class>,
    /// The items ahead of it when the trace began; not all where there are very many.
    pub items: Rc<[flambeau_ir::object::ObjId]>,
    /// The lists and dicts that it draws from.
    pub drawn_from: Rc<[flambeau_ir::object::ObjId]>,
    /// How many items were drawn.
    pub drawn: usize,
    /// Whether the trace came to its end.
    pub ended: bool,
}

/// How many ints a range has.
pub fn range_len((start, stop, step): (i64, i64, i64)) -> u64 {
    let span = if step > 0 { i128::from(stop) - i128::from(start) } else { i128::from(start) - i128::from(stop) };
    let step = i128::from(step).abs().max(1);
    if span <= 0 { 0 } else { ((span + step - 1) / step) as u64 }
}
