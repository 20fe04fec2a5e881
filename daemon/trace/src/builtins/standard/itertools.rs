//! `itertools`. What CPython consumes at once is consumed at once; the rest stays lazy.

use crate::builtins::args::{bind, exactly, name};
use crate::builtins::{Table, fixed_int, unsupported};
use crate::state::tracer::Tracer;
use crate::value::Args;
use crate::value::flow::Flow;
use crate::value::{Iter, Of, Value};
use flambeau_bytecode::Binary;
use flambeau_ir::code::Const;

pub const TABLE: Table = &[
    ("itertools.chain", chain),
    ("itertools.chain.from_iterable", chain_from),
    ("itertools.count", count),
    ("itertools.repeat", repeat),
    ("itertools.islice", islice),
    ("itertools.product", product),
    ("itertools.zip_longest", zip_longest),
    ("itertools.accumulate", accumulate),
    ("itertools.pairwise", pairwise),
    ("itertools.combinations", combinations),
    ("itertools.permutations", permutations),
    ("itertools.filterfalse", filterfalse),
];

/// An iterator over these, which is what the function at `path` makes of `args`.
fn items(tracer: &mut Tracer<'_>, items: Vec<Value>, path: &'static str, args: Vec<Value>) -> Value {
    tracer.new_iter(Iter::Items { items, at: 0, of: Of::Call(path, args) })
}

fn chain(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    let outer = tracer.new_iter(Iter::Items { items: args.pos, at: 0, of: Of::Items });
    Ok(tracer.new_iter(Iter::Chain { outer, inner: None }))
}

fn chain_from(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    if let Some(Value::Class(_)) = args.pos.first() {
        args.pos.remove(0);
    }
    let [iterable] = exactly(path, args)?;
    let outer = tracer.iter(&iterable)?;
    Ok(tracer.new_iter(Iter::Chain { outer, inner: None }))
}

fn count(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [start, step] = bind(path, args, ["start", "step"], 0)?;
    let (next, step) = (start.unwrap_or(Value::int(0)), step.unwrap_or(Value::int(1)));
    let number = |value: &Value| {
        matches!(
            value,
            Value::Int(_) | Value::Const(Const::Int(_) | Const::BigInt(_) | Const::Bool(_) | Const::Float(_))
        )
    };
    if !number(&next) || !number(&step) {
        return unsupported(path);
    }
    Ok(tracer.new_iter(Iter::Count { next, step }))
}

fn repeat(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [value, times] = bind(path, args, ["object", "times"], 1)?;
    let Some(value) = value else { return unsupported(path) };
    let left = match times {
        Some(times) => Some(fixed_int(tracer, &times, path)?.max(0) as u64),
        None => None,
    };
    Ok(tracer.new_iter(Iter::Repeat { value, left }))
}

fn islice(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let (iterable, bounds) = match args.pos.as_slice() {
        [iterable, stop] => (iterable, [Value::NONE, stop.clone(), Value::NONE]),
        [iterable, start, stop] => (iterable, [start.clone(), stop.clone(), Value::NONE]),
        [iterable, start, stop, step] => (iterable, [start.clone(), stop.clone(), step.clone()]),
        _ => return unsupported(path),
    };
    let mut ints = [None; 3];
    for (int, bound) in ints.iter_mut().zip(&bounds) {
        if !bound.is_none() {
            *int = Some(u64::try_from(fixed_int(tracer, bound, path)?).or_else(|_| unsupported(path))?);
        }
    }
    if ints[2] == Some(0) || !args.kw.is_empty() {
        return unsupported(path);
    }
    let iter = tracer.iter(iterable)?;
    let skip = ints[0].unwrap_or(0);
    Ok(tracer.new_iter(Iter::Islice { iter, skip, step: ints[2].unwrap_or(1), left: ints[1] }))
}

fn product(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    let repeat = match args.take_kw("repeat") {
        Some(repeat) => usize::try_from(fixed_int(tracer, &repeat, path)?).or_else(|_| unsupported(path))?,
        None => 1,
    };
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    let mut pools = Vec::new();
    for pool in &args.pos {
        pools.push(tracer.collect_sized(pool)?);
    }
    let made_of = pools.iter().cycle().take(pools.len() * repeat).map(|pool| Value::tuple(pool.clone())).collect();
    let pools: Vec<_> = std::iter::repeat_n(&pools, repeat).flatten().collect();
    let total = pools.iter().try_fold(1_usize, |n, p| n.checked_mul(p.len())).filter(|n| *n <= 1 << 14);
    if total.is_none() {
        return unsupported(path);
    }
    let mut rows: Vec<Vec<Value>> = vec![vec![]];
    for pool in pools {
        rows = rows
            .iter()
            .flat_map(|row| pool.iter().map(|v| [row.as_slice(), std::slice::from_ref(v)].concat()))
            .collect();
    }
    Ok(items(tracer, rows.into_iter().map(Value::tuple).collect(), "itertools.product", made_of))
}

fn zip_longest(tracer: &mut Tracer<'_>, path: &str, mut args: Args) -> Flow<Value> {
    let fill = args.take_kw("fillvalue").unwrap_or(Value::NONE);
    if !args.kw.is_empty() {
        return unsupported(path);
    }
    let iters = args.pos.iter().map(|column| tracer.iter(column).map(Some)).collect::<Flow<_>>()?;
    Ok(tracer.new_iter(Iter::ZipLongest { iters, fill }))
}

fn accumulate(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    if args.pos.len() > 2 {
        return unsupported(path);
    }
    let [iterable, func, initial] = bind(path, args, ["iterable", "func", "initial"], 1)?;
    let Some(iterable) = iterable else { return unsupported(path) };
    let [func, initial] = [func, initial].map(|value| value.filter(|v| !v.is_none()));
    let iter = tracer.iter(&iterable)?;
    Ok(tracer.new_iter(Iter::Accumulate { iter, func, total: None, initial }))
}

fn pairwise(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [iterable] = exactly(path, args)?;
    let iter = tracer.iter(&iterable)?;
    Ok(tracer.new_iter(Iter::Pairwise { iter, old: None }))
}

impl Tracer<'_> {
    /// One more item of `accumulate`, `pairwise` or `zip_longest` (CPython's `Modules/itertoolsmodule.c`).
    pub(crate) fn advance_lazy(&mut self, iter: &mut Iter) -> Flow<Option<Value>> {
        match iter {
            Iter::Accumulate { iter, func, total, initial } => {
                if initial.is_some() {
                    total.clone_from(initial);
                    return Ok(initial.take());
                }
                let Some(item) = self.next(iter)? else { return Ok(None) };
                let sum = match (total.as_ref(), &func) {
                    (None, _) => item,
                    (Some(total), None) => self.binary(Binary::Add, false, total, &item)?,
                    (Some(total), Some(func)) => self.call(func, Args::new(vec![total.clone(), item]))?,
                };
                *total = Some(sum.clone());
                Ok(Some(sum))
            }
            Iter::Pairwise { iter, old } => {
                let first = match old.take() {
                    Some(first) => Some(first),
                    None => self.next(iter)?,
                };
                let Some(first) = first else { return Ok(None) };
                let Some(second) = self.next(iter)? else { return Ok(None) };
                *old = Some(second.clone());
                Ok(Some(Value::tuple(vec![first, second])))
            }
            Iter::ZipLongest { iters, fill } => {
                let mut row = Vec::with_capacity(iters.len());
                for at in 0..iters.len() {
                    let item = match &iters[at] {
                        Some(iter) => self.next(iter)?,
                        None => None,
                    };
                    if item.is_none() {
                        iters[at] = None;
                        if iters.iter().all(Option::is_none) {
                            return Ok(None);
                        }
                    }
                    row.push(item.unwrap_or_else(|| fill.clone()));
                }
                Ok((!row.is_empty()).then(|| Value::tuple(row)))
            }
            _ => unsupported("itertools"),
        }
    }
}

fn combinations(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    chosen(tracer, path, args)
}

fn permutations(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    chosen(tracer, path, args)
}

fn chosen(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [iterable, count] = bind(path, args, ["iterable", "r"], 1)?;
    let Some(iterable) = iterable else { return unsupported(path) };
    let all = name(path) == "permutations";
    // Only `permutations` looks at the items before it looks at how many are wanted.
    let count = match count {
        Some(count) if count.as_dim().is_some() => Some(fixed_int(tracer, &count, path)?),
        None if all => None,
        _ => return unsupported(path),
    };
    let pool = tracer.collect_sized(&iterable)?;
    let count = count.unwrap_or(pool.len() as i64);
    if count < 0 || pool.len() > 12 {
        return unsupported(path);
    }
    let increasing = name(path) == "combinations";
    let made_of = vec![Value::tuple(pool.clone()), Value::int(count)];
    let mut rows: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..count {
        let extend = |row: &Vec<usize>| {
            let row = row.clone();
            let free = move |i: &usize| if increasing { row.last().is_none_or(|l| l < i) } else { !row.contains(i) };
            (0..pool.len()).filter(free).collect::<Vec<_>>()
        };
        rows = rows.iter().flat_map(|row| extend(row).into_iter().map(|i| [row.as_slice(), &[i]].concat())).collect();
    }
    let row = |row: Vec<usize>| Value::tuple(row.into_iter().map(|i| pool[i].clone()).collect());
    let rows = rows.into_iter().map(row).collect();
    let path = if increasing { "itertools.combinations" } else { "itertools.permutations" };
    Ok(items(tracer, rows, path, made_of))
}

fn filterfalse(tracer: &mut Tracer<'_>, path: &str, args: Args) -> Flow<Value> {
    let [func, iterable] = exactly(path, args)?;
    let iter = tracer.iter(&iterable)?;
    Ok(tracer.new_iter(Iter::Filter { func, iter, keep: false }))
}
