//! Iteration: `iter()`, `next()`, and draining an iterable.

use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::{Flow, Stop, stop};
use crate::value::frame::FrameEnd;
use crate::value::{Class, DictId, Exhausted, Iter, IterId, ListId, Of, Value, ViewKind};
use flambeau_bytecode::Binary;
use flambeau_ir::code::Const;
use flambeau_ir::graph::Target;
use flambeau_ir::reason::ReasonCode;

/// Items drained from one iterable before a trace is given up.
const MAX_ITEMS: usize = 200_000;

impl Tracer<'_> {
    /// `iter(value)`.
    #[expect(clippy::iter_not_returning_iterator, reason = "Python's `iter`, on traced values")]
    pub fn iter(&mut self, value: &Value) -> Flow<Value> {
        if let Some(iter) = self.python_special(value, "__iter__")? {
            if iter.is_none() {
                let name = self.type_name(value);
                return self.raise_named("TypeError", &format!("'{name}' object is not iterable"));
            }
            let iter = self.call(&iter, Args::default())?;
            return self.checked_iterator(iter);
        }
        let iter = match &self.base(value) {
            Value::Iter(_) | Value::Generator(_) => return Ok(value.clone()),
            // An iterator's `__iter__` gives itself in all built-in types.
            Value::Opaque(o) if is_iterator(&o.class) => return Ok(value.clone()),
            Value::List(list) => Iter::List { list: *list, at: 0 },
            Value::Dict(dict) => self.dict_iter(*dict, ViewKind::Keys)?,
            Value::DictView(dict, kind) => self.dict_iter(*dict, *kind)?,
            Value::Parts(parts) => match self.kind_of(parts).iterator(self, parts)? {
                Some(iter) => return Ok(iter),
                None => return self.not_iterable(value),
            },
            Value::Tuple(t) => Iter::Items { items: t.items.clone(), at: 0, of: Of::Value(value.clone()) },
            Value::Const(Const::Str(s)) => {
                let items = s.chars().map(|c| Value::str(c.encode_utf8(&mut [0; 4]))).collect();
                Iter::Items { items, at: 0, of: Of::Value(value.clone()) }
            }
            Value::Const(Const::Bytes(b)) => {
                let items = b.iter().map(|b| Value::int(i64::from(*b))).collect();
                Iter::Items { items, at: 0, of: Of::Value(value.clone()) }
            }
            Value::Set(set) => {
                let items = self.ordered_items(*set)?;
                Iter::Items { items, at: 0, of: Of::Value(value.clone()) }
            }
            Value::Tensor(_) => {
                let items =
                    self.torch_call(Target::Method("unbind".into()), Args::new(vec![value.clone(), Value::int(0)]))?;
                let Value::Tuple(items) = items else {
                    return stop(ReasonCode::Internal, "unbind gave no tuple");
                };
                Iter::Items { items: items.items.clone(), at: 0, of: Of::Items }
            }
            Value::Instance(_) => {
                if self.python_special(value, "__getitem__")?.is_none() {
                    return self.not_iterable(value);
                }
                Iter::Sequence { object: value.clone(), at: 0 }
            }
            _ => return self.not_iterable(value),
        };
        Ok(self.new_iter(iter))
    }

    /// `PyObject_GetIter` looks at what `__iter__` gave.
    fn checked_iterator(&mut self, iter: Value) -> Flow<Value> {
        let is_iterator = match &iter {
            Value::Iter(_) | Value::Generator(_) => true,
            Value::Opaque(o) if is_iterator(&o.class) => true,
            _ => self.special(&iter, "__next__")?.is_some(),
        };
        if is_iterator {
            return Ok(iter);
        }
        self.need_plain(&iter, "iteration")?;
        let name = self.type_name(&iter);
        self.raise_named("TypeError", &format!("iter() returned non-iterator of type '{name}'"))
    }

    /// Whether `iter(value)` fails as the type has nothing to iterate by, not by what it has.
    pub(crate) fn has_no_iter(&mut self, value: &Value) -> Flow<bool> {
        match value {
            Value::Instance(_) => {
                let known = self.is_plain(value);
                Ok(known && self.special(value, "__iter__")?.is_none() && self.special(value, "__getitem__")?.is_none())
            }
            Value::Const(c) => {
                Ok(self.is_plain(value) && !matches!(c, Const::Str(_) | Const::Bytes(_) | Const::Tuple(_)))
            }
            _ => Ok(self.is_bare_of_items(value)),
        }
    }

    fn not_iterable(&mut self, value: &Value) -> Flow<Value> {
        self.need_plain(value, "iteration")?;
        let name = self.type_name(value);
        self.raise_named("TypeError", &format!("'{name}' object is not iterable"))
    }

    fn dict_iter(&mut self, dict: DictId, kind: ViewKind) -> Flow<Iter> {
        let hooks = self.hooks(dict, kind)?;
        let len = match &hooks {
            Some(hooks) => hooks.len(),
            None => self.whole_len(dict)?,
        };
        let deleted = self.arenas.dicts[dict].deleted;
        Ok(Iter::Dict { dict, kind, at: 0, len, deleted, hooks })
    }

    fn whole_len(&mut self, dict: DictId) -> Flow<usize> {
        self.load_dict(dict)?;
        Ok(self.arenas.dicts[dict].items.len())
    }

    /// The next item; `None` when the iterator is exhausted.
    pub fn next(&mut self, iterator: &Value) -> Flow<Option<Value>> {
        let item = self.next_or_raise(iterator);
        Ok(self.catch(item, "StopIteration")?.flatten())
    }

    /// `next(iterator)`: the next item; `None` where the end is no exception yet. A `StopIteration` that code of the iterator
    /// raises, or the value that a generator returns, is the exception that `next()` raises.
    pub(crate) fn next_or_raise(&mut self, iterator: &Value) -> Flow<Option<Value>> {
        match iterator {
            Value::Iter(id) => self.advance(*id),
            Value::Generator(id) => match self.resume(*id, Ok(Value::NONE))? {
                FrameEnd::Yield(value) => Ok(Some(value)),
                FrameEnd::Return(value) if !value.is_none() => self.raise_with("StopIteration", vec![value]),
                _ => Ok(None),
            },
            Value::Opaque(o) if !o.class.is_python => stop(ReasonCode::LiveIterator, o.class.name.qualname.to_string()),
            _ => match self.special(iterator, "__next__")? {
                Some(next) => self.call(&next, Args::default()).map(Some),
                None => {
                    self.need_plain(iterator, "next()")?;
                    let name = self.type_name(iterator);
                    self.raise_named("TypeError", &format!("'{name}' object is not an iterator"))
                }
            },
        }
    }

    /// Advances a built-in iterator. It is taken out of its place meanwhile, as its parts may run code.
    fn advance(&mut self, id: IterId) -> Flow<Option<Value>> {
        let mut iter = std::mem::replace(&mut self.arenas.iters[id], Iter::Running);
        let result = self.advance_iter(&mut iter);
        self.arenas.iters[id] = match (&iter, &result) {
            // What these draw from is dropped at an exception as well.
            (Iter::Pairwise { .. } | Iter::ZipLongest { .. }, Err(Stop::Raise(_))) | (_, Ok(None)) => exhausted(iter),
            _ => iter,
        };
        result
    }

    fn advance_iter(&mut self, iter: &mut Iter) -> Flow<Option<Value>> {
        match iter {
            Iter::Done(_) => Ok(None),
            Iter::Running => stop(ReasonCode::LiveIterator, "an iterator that is advanced by what it calls"),
            Iter::Items { items, of: Of::Value(Value::Set(set)), .. } if self.is_other_set(*set, items) => {
                self.next_of_other_set(*set, items.len())
            }
            Iter::Items { items, at, .. } => {
                let item = items.get(*at).cloned();
                *at += usize::from(item.is_some());
                Ok(item)
            }
            Iter::List { list, at } => {
                *at += 1;
                Ok(self.list_items(*list)?.get(*at - 1).cloned())
            }
            Iter::Reversed { of, left } => {
                let Some(at) = left.checked_sub(1) else { return Ok(None) };
                if let Value::List(list) = of {
                    *left = at;
                    return Ok(self.list_items(*list)?.get(at).cloned());
                }
                let item = self.subscript(of, &Value::int(at as i64));
                let item = self.catch(item, "IndexError")?;
                *left = at;
                Ok(item)
            }
            Iter::Sequence { object, at } => {
                let Some(getitem) = self.python_special(object, "__getitem__")? else {
                    return stop(ReasonCode::UnsupportedObject, "a sequence that lost its items");
                };
                let result = self.call(&getitem, Args::new(vec![Value::int(*at as i64)]));
                *at += 1;
                self.catch(result, "IndexError")
            }
            Iter::Dict { dict, at, hooks: Some(hooks), .. } => self.next_hook(*dict, hooks, at),
            Iter::Dict { dict, deleted, .. } if self.arenas.dicts[*dict].deleted != *deleted => {
                // It goes on behind the place of what was deleted, and may find more than it expects.
                stop(ReasonCode::UnsupportedObject, "a dict whose items are deleted while it is iterated over")
            }
            Iter::Dict { dict, kind, at, len, hooks: None, .. } => {
                if self.whole_len(*dict)? != *len {
                    return self.raise_named("RuntimeError", "dictionary changed size during iteration");
                }
                *at += 1;
                let item = self.arenas.dicts[*dict].items.get_index(*at - 1).map(|(_, kv)| kv.clone());
                Ok(item.map(|(k, v)| match kind {
                    ViewKind::Keys => k,
                    ViewKind::Values => v,
                    ViewKind::Items => Value::tuple(vec![k, v]),
                }))
            }
            Iter::Range { next, step, left } => {
                if *left == 0 {
                    return Ok(None);
                }
                let value = *next;
                *left -= 1;
                *next = next.wrapping_add(*step);
                Ok(Some(Value::int(value)))
            }
            Iter::Zip { iters, strict } => self.advance_zip(iters, *strict),
            Iter::Accumulate { .. } | Iter::Pairwise { .. } | Iter::ZipLongest { .. } => self.advance_lazy(iter),
            Iter::Chain { .. } | Iter::Count { .. } | Iter::Repeat { .. } | Iter::Islice { .. } => {
                self.advance_itertools(iter)
            }
            Iter::Enumerate { iter, count } => {
                let Some(item) = self.next_or_raise(iter)? else { return Ok(None) };
                let index = count.clone();
                *count = self.binary(Binary::Add, false, count, &Value::int(1))?;
                Ok(Some(Value::tuple(vec![index, item])))
            }
            Iter::Map { .. } | Iter::Filter { .. } | Iter::CallUntil { .. } => self.advance_called(iter),
            Iter::Ahead(ahead) => self.draw(ahead)?.map(|item| self.read(&item)).transpose(),
            Iter::Polyfill(polyfill) => self.advance_polyfill(polyfill),
        }
    }

    fn advance_called(&mut self, iter: &mut Iter) -> Flow<Option<Value>> {
        match iter {
            Iter::Map { func, iters } => {
                let mut args = Vec::with_capacity(iters.len());
                for iter in iters.iter() {
                    match self.next_or_raise(iter)? {
                        Some(item) => args.push(item),
                        None => return Ok(None),
                    }
                }
                self.call(func, Args::new(args)).map(Some)
            }
            Iter::Filter { func, iter, keep } => {
                while let Some(item) = self.next_or_raise(iter)? {
                    let tested =
                        if func.is_none() { item.clone() } else { self.call(func, Args::new(vec![item.clone()]))? };
                    if self.truth(&tested)? == *keep {
                        return Ok(Some(item));
                    }
                }
                Ok(None)
            }
            Iter::CallUntil { func, sentinel } => {
                let value = self.call(func, Args::default());
                let Some(value) = self.catch(value, "StopIteration")? else { return Ok(None) };
                let done = self.equal(&value, sentinel)?;
                Ok((!done).then_some(value))
            }
            _ => stop(ReasonCode::Internal, "an iterator that calls nothing"),
        }
    }

    fn advance_itertools(&mut self, iter: &mut Iter) -> Flow<Option<Value>> {
        match iter {
            Iter::Chain { outer, inner } => loop {
                if let Some(current) = inner {
                    if let Some(item) = self.next(current)? {
                        return Ok(Some(item));
                    }
                    *inner = None;
                }
                match self.next(outer)? {
                    Some(iterable) => *inner = Some(self.iter(&iterable)?),
                    None => return Ok(None),
                }
            },
            Iter::Count { next, step } => {
                let value = next.clone();
                *next = self.binary(Binary::Add, false, next, step)?;
                Ok(Some(value))
            }
            Iter::Repeat { value, left } => match left {
                Some(0) => Ok(None),
                Some(n) => {
                    *n -= 1;
                    Ok(Some(value.clone()))
                }
                None => Ok(Some(value.clone())),
            },
            Iter::Islice { iter, skip, step, left } => {
                for _ in 0..*skip {
                    if *left == Some(0) || self.next_or_raise(iter)?.is_none() {
                        return Ok(None);
                    }
                    if let Some(left) = left {
                        *left -= 1;
                    }
                }
                *skip = step.saturating_sub(1);
                if *left == Some(0) {
                    return Ok(None);
                }
                if let Some(left) = left {
                    *left -= 1;
                }
                self.next_or_raise(iter)
            }
            _ => stop(ReasonCode::Internal, "an iterator that is advanced elsewhere"),
        }
    }

    fn advance_zip(&mut self, iters: &[Value], strict: bool) -> Flow<Option<Value>> {
        let mut items = Vec::with_capacity(iters.len());
        for (i, iter) in iters.iter().enumerate() {
            match if strict { self.next(iter)? } else { self.next_or_raise(iter)? } {
                Some(item) => items.push(item),
                None if strict && i > 0 => {
                    return self.raise_named(
                        "ValueError",
                        &format!("zip() argument {} is shorter than argument{}", i + 1, up_to(i)),
                    );
                }
                None if strict => {
                    for (j, other) in iters.iter().enumerate().skip(1) {
                        if self.next(other)?.is_some() {
                            let message = format!("zip() argument {} is longer than argument{}", j + 1, up_to(j));
                            return self.raise_named("ValueError", &message);
                        }
                    }
                    return Ok(None);
                }
                None => return Ok(None),
            }
        }
        if items.is_empty() { Ok(None) } else { Ok(Some(Value::tuple(items))) }
    }

    /// All items of an iterable, in a container that nobody else sees meanwhile.
    pub fn collect(&mut self, iterable: &Value) -> Flow<Vec<Value>> {
        if let Some(items) = self.items_at_once(iterable)? {
            return Ok(items);
        }
        let mut items = Vec::new();
        self.for_each(iterable, |_, item| {
            items.push(item);
            Ok(())
        })?;
        Ok(items)
    }

    /// As [`Tracer::collect`], for functions that make a list or tuple: they ask the iterable for its length first.
    pub fn collect_sized(&mut self, iterable: &Value) -> Flow<Vec<Value>> {
        if let Some(items) = self.items_at_once(iterable)? {
            return Ok(items);
        }
        let iter = self.iter(iterable)?;
        self.length_hint(iterable)?;
        self.rest(&iter)
    }

    /// What is left in an iterator, which is not asked for an iterator again.
    fn rest(&mut self, iter: &Value) -> Flow<Vec<Value>> {
        let mut items = Vec::new();
        self.drain(iter, |_, item| {
            items.push(item);
            Ok(())
        })?;
        Ok(items)
    }

    /// As [`Tracer::collect_sized`], for functions that say something else of what cannot be iterated (`PySequence_Fast`).
    pub fn collect_fast(&mut self, iterable: &Value, message: &str) -> Flow<Vec<Value>> {
        if let Some(items) = self.items_at_once(iterable)? {
            return Ok(items);
        }
        let iter = self.iter(iterable);
        if self.is_raise_of(&iter, "TypeError") {
            return self.raise_named("TypeError", message);
        }
        let iter = iter?;
        self.length_hint(iterable)?;
        self.rest(&iter)
    }

    /// The items of an exact list or tuple, which CPython copies before anything else runs.
    fn items_at_once(&mut self, iterable: &Value) -> Flow<Option<Vec<Value>>> {
        Ok(match iterable {
            Value::Tuple(t) if t.class.as_ref().is_none_or(|c| !c.is_python) => Some(t.items.clone()),
            Value::List(list) if self.arenas.lists[*list].class.is_none() => Some(self.list_items(*list)?.clone()),
            _ => None,
        })
    }

    /// Hands the items of an iterable to `take` one by one. Each is taken before the next one is asked for, as what makes
    /// them may look at what `take` has done so far.
    pub fn for_each(&mut self, iterable: &Value, take: impl FnMut(&mut Self, Value) -> Flow<()>) -> Flow<()> {
        let iter = self.iter(iterable)?;
        self.drain(&iter, take)
    }

    /// As [`Tracer::for_each`], of an iterator.
    fn drain(&mut self, iter: &Value, mut take: impl FnMut(&mut Self, Value) -> Flow<()>) -> Flow<()> {
        for _ in 0..MAX_ITEMS {
            match self.next(iter)? {
                Some(item) => take(self, item)?,
                None => return Ok(()),
            }
        }
        stop(ReasonCode::TooLarge, "an iterable of very many items")
    }

    /// `list.extend` (`list_extend` in CPython's `Objects/listobject.c`).
    pub fn list_extend(&mut self, list: ListId, iterable: &Value) -> Flow<()> {
        if let Some(items) = self.items_at_once(iterable)? {
            self.list_add(list, items);
            return Ok(());
        }
        let iter = self.iter(iterable)?;
        self.length_hint(iterable)?;
        self.drain(&iter, |t, item| {
            t.list_add(list, [item]);
            Ok(())
        })
    }

    /// What `PyObject_LengthHint` runs of the user's; the number itself is of no interest.
    fn length_hint(&mut self, value: &Value) -> Flow<()> {
        if let Value::Iter(id) = value
            && let Iter::Sequence { object: of, .. } | Iter::Reversed { of, .. } = &self.arenas.iters[*id]
        {
            // These say how long the sequence still is (`iter_len`, `reversed_len`).
            let of = of.clone();
            let Some(length) = self.python_special(&of, "__len__")? else { return Ok(()) };
            let length = self.call(&length, Args::default());
            return match self.catch(length, "TypeError")? {
                Some(length) if length.as_int().is_none_or(|n| n < 0) => {
                    stop(ReasonCode::UnsupportedCall, "a length that is none")
                }
                _ => Ok(()),
            };
        }
        if matches!(value, Value::Const(_) | Value::Generator(_) | Value::Tensor(_)) || self.is_sequence_of_parts(value)
        {
            return Ok(());
        }
        if self.special(value, "__len__")?.is_some() && self.python_special(value, "__len__")?.is_none() {
            // The length that C code gives says it.
            return Ok(());
        }
        for method in ["__len__", "__length_hint__"] {
            let Some(method) = self.python_special(value, method)? else { continue };
            let result = self.call(&method, Args::default());
            if let Some(hint) = self.catch(result, "TypeError")? {
                return match hint {
                    Value::Int(_) => Ok(()),
                    hint if hint.as_int().is_some_and(|n| n >= 0) => Ok(()),
                    Value::Const(Const::NotImplemented) => Ok(()),
                    _ => stop(ReasonCode::UnsupportedCall, "a length hint that is no length"),
                };
            }
        }
        Ok(())
    }

    /// The items of a mapping, for `**mapping`.
    pub fn mapping_items(&mut self, mapping: &Value) -> Flow<Vec<(Value, Value)>> {
        let mut items = Vec::new();
        let found = self.for_each_item(mapping, |_, key, value| {
            items.push((key, value));
            Ok(())
        })?;
        if found {
            return Ok(items);
        }
        let name = self.type_name(mapping);
        self.raise_named("TypeError", &format!("'{name}' object is not a mapping"))
    }

    /// Hands keys and values of a mapping to `take` one by one (`dict_merge` in CPython's `Objects/dictobject.c`); false
    /// if it is none: it has no `keys`.
    pub fn for_each_item(
        &mut self,
        mapping: &Value,
        mut take: impl FnMut(&mut Self, Value, Value) -> Flow<()>,
    ) -> Flow<bool> {
        if let Value::Dict(dict) = mapping
            && !self.has_own_items(*dict, mapping)?
        {
            for (key, value) in self.dict_items(*dict)? {
                take(self, key, value)?;
            }
            return Ok(true);
        }
        let Some(keys) = self.find_attr(mapping, "keys")? else { return Ok(false) };
        let keys = self.call(&keys, Args::default())?;
        for key in self.collect_sized(&keys)? {
            let value = self.subscript(mapping, &key)?;
            take(self, key, value)?;
        }
        Ok(true)
    }

    /// Whether what a dict's subclass says of its items counts, not what the dict holds.
    fn has_own_items(&mut self, dict: DictId, value: &Value) -> Flow<bool> {
        let Some(class) = self.arenas.dicts[dict].class.clone().filter(|c| c.is_python) else { return Ok(false) };
        if self.python_special(value, "__iter__")?.is_some() {
            return Ok(true);
        }
        // It iterates in a way of its own, so `dict_merge` asks its subclasses for everything.
        Ok(class.derives("collections.OrderedDict")
            && (self.python_special(value, "keys")?.is_some() || self.python_special(value, "__getitem__")?.is_some()))
    }

    /// A new built-in iterator.
    pub fn new_iter(&mut self, iter: Iter) -> Value {
        Value::Iter(self.arenas.iters.push(iter))
    }
}

/// What becomes of an iterator that has no more items.
fn exhausted(iter: Iter) -> Iter {
    Iter::Done(match iter {
        Iter::List { .. } => Exhausted::List,
        Iter::Reversed { of: Value::List(_), .. } => Exhausted::Reversed,
        Iter::Dict { kind, .. } => Exhausted::Dict(kind),
        Iter::Chain { .. } => Exhausted::Chain,
        Iter::Islice { .. } => Exhausted::Islice,
        Iter::Items { of: Of::Value(Value::Tuple(_)), .. } => Exhausted::Tuple,
        Iter::Items { of: Of::Value(Value::Set(_)), .. } => Exhausted::Set,
        Iter::Items { of: Of::Call("builtins.reversed", ref args), .. } => match args[..] {
            [Value::Tuple(_)] => Exhausted::ReversedSequence,
            [Value::Dict(_)] => Exhausted::ReversedDict,
            _ => return iter,
        },
        Iter::Pairwise { .. } => Exhausted::Pairwise,
        Iter::ZipLongest { .. } => Exhausted::ZipLongest,
        Iter::Reversed { .. } => Exhausted::ReversedSequence,
        Iter::Sequence { .. } => Exhausted::Sequence,
        Iter::CallUntil { .. } => Exhausted::CallUntil,
        // The others ask what they draw from anew, or are at the end of what cannot change.
        iter => return iter,
    })
}

/// The arguments of `zip` before one, as its messages name them.
fn up_to(count: usize) -> String {
    if count == 1 { " 1".into() } else { format!("s 1-{count}") }
}

/// Whether this is a built-in iterator type: one of those that containers, ranges, `zip`, `enumerate`, ... make.
fn is_iterator(class: &Class) -> bool {
    let name = &*class.name.qualname;
    let made = ["zip", "enumerate", "map", "filter", "reversed", "generator", "range_iterator", "callable_iterator"];
    !class.is_python && &*class.name.module == "builtins" && (name.ends_with("_iterator") || made.contains(&name))
}
