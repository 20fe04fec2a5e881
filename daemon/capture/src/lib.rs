//! Wire snapshot to checked [`Frame`]: what later stages may rely on is checked here, once. No tracing happens here.
//!
//! Objects may name others that are not described yet (the trace asks for them); the frame's own roots must be there.

use flambeau_ir::code::{Code, CodeHash, Const};
use flambeau_ir::frame::{DynamicOf, Frame, FrameId};
use flambeau_ir::object::{Described, Heap, ObjId, Object, ObjectData, PARTS};
use flambeau_ir::tensor::TensorDesc;
use flambeau_wire::from_client::{FrameKey, KeyOptions, Snapshot};
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Most objects in one snapshot.
const MAX_OBJECTS: usize = 4 << 20;
/// Deepest nesting of a constant.
const MAX_CONST_DEPTH: u32 = 64;
/// Most dimensions of a tensor, as torch has it for its iterators.
const MAX_NDIM: usize = 64;
/// `CO_VARARGS` and `CO_VARKEYWORDS` of CPython's `code.h`.
const VARARGS: u32 = 0x4;
const VARKEYWORDS: u32 = 0x8;

/// What is wrong with a snapshot. The client has a bug, or is no client of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// A root of the frame is not among the objects.
    #[error("{0} is not described ({1:?})")]
    Missing(&'static str, ObjId),
    /// The function is something else.
    #[error("the frame's function is no Python function")]
    NoFunction,
    /// The function's code is not the frame's.
    #[error("the function's code {0} is not the frame's {1}")]
    OtherCode(CodeHash, CodeHash),
    /// A function's code is missing.
    #[error("code {0} is not in the snapshot")]
    MissingCode(CodeHash),
    /// A code object contradicts itself.
    #[error("code {0}: {1}")]
    BadCode(CodeHash, &'static str),
    /// It is not what the key says.
    #[error("{0} of the key is another one than the snapshot's")]
    OtherKey(&'static str),
    /// An argument is missing, or a slot that is no argument has one.
    #[error("argument slot {0} {1}")]
    Argument(usize, &'static str),
    /// An object contradicts itself, or was described twice in two ways.
    #[error("{0:?}: {1}")]
    BadObject(ObjId, &'static str),
    /// An option names something that is not there.
    #[error("dynamic dimension of {0:?}: {1}")]
    BadDynamicDim(DynamicOf, &'static str),
    /// More than anything sensible.
    #[error("{0} objects")]
    TooLarge(usize),
}

/// The checked frame `id` of `snapshot`.
pub fn capture(id: FrameId, snapshot: Snapshot) -> Result<Frame, CaptureError> {
    let Snapshot { function, args, builtins, ambient, options, described } = snapshot;
    let heap = heap(described)?;
    let data = |what, id| heap.get(id).map(|o| &o.data).ok_or(CaptureError::Missing(what, id));
    let ObjectData::Function(desc) = data("the function", function)? else { return Err(CaptureError::NoFunction) };
    if id.path.is_empty() && desc.code != id.code {
        return Err(CaptureError::OtherCode(desc.code, id.code));
    }
    data("the builtins namespace", builtins)?;
    let code = heap.codes.get(&id.code).ok_or(CaptureError::MissingCode(id.code))?;
    check_args(code, &args)?;
    for arg in args.iter().flatten() {
        data("an argument", *arg)?;
    }
    for dim in &options.dynamic_dims {
        let bad = |what| Err(CaptureError::BadDynamicDim(dim.of.clone(), what));
        if let DynamicOf::Size(object, d) = dim.of {
            match data("a dynamic dimension's object", object)? {
                // Nothing is told of the sizes of a tensor that is not traced.
                ObjectData::Tensor(t) if t.unusual.is_some() || (d as usize) < t.meta.ndim() => {}
                _ => return bad("no tensor with that dimension"),
            }
        }
        if dim.min > dim.max {
            return bad("its smallest value is above its largest");
        }
    }
    Ok(Frame { id, function, args, builtins, ambient, heap, options })
}

/// Whether `key` is the key of this snapshot, as far as it follows from it. What it is stored under is believed no client.
pub fn check_key(key: &FrameKey, snapshot: &Snapshot) -> Result<(), CaptureError> {
    if !key.frame.path.is_empty() {
        return Err(CaptureError::OtherKey("the frame"));
    }
    if key.options != KeyOptions::of(&snapshot.options) {
        return Err(CaptureError::OtherKey("the options"));
    }
    let codes = &snapshot.described.codes;
    let version = codes.iter().find(|code| code.hash == key.frame.code).map(|code| code.python);
    let named = version.map(|(major, minor)| format!("{major}.{minor}."));
    if named.is_some_and(|version| !key.python.starts_with(&version)) {
        return Err(CaptureError::OtherKey("the version of Python"));
    }
    Ok(())
}

/// Checks what came with an answer to a question. Objects may name code that came before.
pub fn check_answer(described: &Described) -> Result<(), CaptureError> {
    described.codes.iter().try_for_each(|code| check_code(code))?;
    described.objects.iter().try_for_each(|object| match check_object(object, &Heap::default()) {
        Err(CaptureError::MissingCode(_)) => Ok(()),
        checked => checked,
    })
}

/// The checked heap of what was described.
fn heap(described: Described) -> Result<Heap, CaptureError> {
    if described.objects.len() > MAX_OBJECTS {
        return Err(CaptureError::TooLarge(described.objects.len()));
    }
    let mut heap = Heap { items: described.items, lookups: described.lookups, ..Heap::default() };
    for code in described.codes {
        check_code(&code)?;
        heap.codes.insert(code.hash, code);
    }
    for object in described.objects {
        check_object(&object, &heap)?;
        match heap.objects.entry(object.id) {
            Entry::Vacant(slot) => {
                slot.insert(Arc::new(object));
            }
            Entry::Occupied(known) if **known.get() == object => {}
            Entry::Occupied(_) => return Err(CaptureError::BadObject(object.id, "described in two ways")),
        }
    }
    Ok(heap)
}

fn check_code(code: &Code) -> Result<(), CaptureError> {
    let bad = |what| Err(CaptureError::BadCode(code.hash, what));
    let arguments = argument_slots(code);
    if code.bytecode.is_empty() || !code.bytecode.len().is_multiple_of(2) {
        bad("its bytecode is no sequence of code units")
    } else if code.localsplusnames.len() != code.localspluskinds.len() {
        bad("its locals have no kind each")
    } else if arguments > code.localsplusnames.len() {
        bad("it has fewer locals than arguments")
    } else if code.posonlyargcount > code.argcount {
        bad("more positional-only arguments than arguments")
    } else if code.consts.iter().any(|c| too_deep(c, 0)) {
        bad("a constant is nested too deep")
    } else if !code.is_sound() {
        bad("it is not what its hash says")
    } else {
        Ok(())
    }
}

/// Number of leading `localsplus` slots that hold arguments.
fn argument_slots(code: &Code) -> usize {
    let extra = u32::from(code.flags & VARARGS != 0) + u32::from(code.flags & VARKEYWORDS != 0);
    code.argcount.saturating_add(code.kwonlyargcount).saturating_add(extra) as usize
}

fn check_args(code: &Code, args: &[Option<ObjId>]) -> Result<(), CaptureError> {
    let wanted = argument_slots(code);
    if args.len() > code.localsplusnames.len() {
        return Err(CaptureError::Argument(args.len() - 1, "is past the locals"));
    }
    for slot in 0..wanted.max(args.len()) {
        match (slot < wanted, args.get(slot).is_some_and(Option::is_some)) {
            (true, false) => return Err(CaptureError::Argument(slot, "has no value")),
            (false, true) => return Err(CaptureError::Argument(slot, "is no argument")),
            _ => {}
        }
    }
    Ok(())
}

fn check_object(object: &Object, heap: &Heap) -> Result<(), CaptureError> {
    let bad = |what| Err(CaptureError::BadObject(object.id, what));
    match &object.data {
        ObjectData::Tensor(tensor) => check_tensor(tensor).or_else(bad),
        ObjectData::Function(f) if !heap.codes.contains_key(&f.code) => Err(CaptureError::MissingCode(f.code)),
        ObjectData::Parts(of, items) if PARTS.get(usize::from(*of)).is_none_or(|t| t.names.len() != items.len()) => {
            bad("not in its type's parts")
        }
        ObjectData::Const(c) | ObjectData::ConstSubclass(c) if too_deep(c, 0) => bad("nested too deep"),
        ObjectData::Class(class) if class.mro.first() != Some(&object.id) => bad("not the first of its own MRO"),
        _ => Ok(()),
    }
}

fn check_tensor(tensor: &TensorDesc) -> Result<(), &'static str> {
    let meta = &tensor.meta;
    if tensor.unusual.is_some() {
        return Ok(());
    }
    if meta.sizes.len() != meta.strides.len() || meta.sizes.len() > MAX_NDIM {
        return Err("sizes and strides do not match");
    }
    let constants = |dims: &[flambeau_ir::dim::Dim]| dims.iter().all(|d| d.as_const().is_some_and(|c| c >= 0));
    if !constants(&meta.sizes) || !constants(&meta.strides) || tensor.storage_offset < 0 {
        return Err("a negative or symbolic size, stride or offset");
    }
    Ok(())
}

fn too_deep(value: &Const, depth: u32) -> bool {
    depth > MAX_CONST_DEPTH
        || match value {
            Const::Tuple(items) | Const::FrozenSet(items) => items.iter().any(|i| too_deep(i, depth + 1)),
            Const::Slice(parts) => parts.iter().any(|i| too_deep(i, depth + 1)),
            Const::Code(code) => code.consts.iter().any(|i| too_deep(i, depth + 1)),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flambeau_ir::frame::{DynamicDim, TraceOptions};
    use flambeau_ir::guard::Ambient;
    use flambeau_ir::kernel::DType;
    use flambeau_ir::object::FunctionDesc;
    use flambeau_ir::tensor::{Device, TensorMeta};

    fn code() -> Code {
        let code = unhashed();
        Code { hash: code.content_hash(), ..code }
    }

    fn unhashed() -> Code {
        Code {
            hash: CodeHash([0; 32]),
            python: (3, 11),
            name: "f".into(),
            qualname: "f".into(),
            filename: "f.py".into(),
            firstlineno: 1,
            argcount: 1,
            posonlyargcount: 0,
            kwonlyargcount: 0,
            stacksize: 2,
            flags: 3,
            bytecode: vec![151, 0],
            consts: vec![Const::None],
            names: vec![],
            localsplusnames: vec!["x".into(), "y".into()],
            localspluskinds: vec![0x20, 0x20],
            linetable: vec![],
            exceptiontable: vec![],
        }
    }

    fn object(id: u32, data: ObjectData) -> Object {
        Object { id: ObjId(id), class: ObjId(90), path: None, dict: None, data }
    }

    fn snapshot() -> Snapshot {
        let function = FunctionDesc {
            code: code().hash,
            name: "f".into(),
            qualname: "f".into(),
            module: None,
            defaults: None,
            kwdefaults: None,
            closure: vec![],
            globals: ObjId(80),
        };
        let meta = TensorMeta::contiguous(DType::F32, Device::CPU, vec![2.into(), 3.into()]);
        let tensor = TensorDesc {
            meta,
            storage_offset: 0,
            storage: 0,
            dispatch_keys: 0,
            is_leaf_or_view: true,
            is_inference: false,
            unusual: None,
        };
        let objects = vec![
            object(1, ObjectData::Function(Box::new(function))),
            object(2, ObjectData::Namespace),
            object(3, ObjectData::Tensor(Box::new(tensor))),
        ];
        Snapshot {
            function: ObjId(1),
            args: vec![Some(ObjId(3))],
            builtins: ObjId(2),
            ambient: Ambient::default(),
            options: TraceOptions::default(),
            described: Described { objects, codes: vec![Arc::new(code())], ..Described::default() },
        }
    }

    fn result(snapshot: Snapshot) -> Result<Frame, CaptureError> {
        capture(FrameId { code: code().hash, path: vec![] }, snapshot)
    }

    #[test]
    fn a_sound_snapshot_is_a_frame() {
        let frame = result(snapshot()).unwrap();
        assert_eq!(frame.heap.objects.len(), 3);
    }

    #[test]
    fn arguments_fill_their_slots_and_no_others() {
        let with = |args| result(Snapshot { args, ..snapshot() }).unwrap_err();
        assert_eq!(with(vec![None]), CaptureError::Argument(0, "has no value"));
        assert_eq!(with(vec![Some(ObjId(3)), Some(ObjId(3))]), CaptureError::Argument(1, "is no argument"));
        assert_eq!(with(vec![None; 3]), CaptureError::Argument(2, "is past the locals"));
        assert_eq!(with(vec![Some(ObjId(5))]), CaptureError::Missing("an argument", ObjId(5)));
    }

    #[test]
    fn code_must_be_there_and_consistent() {
        let mut missing = snapshot();
        missing.described.codes.clear();
        assert_eq!(result(missing).unwrap_err(), CaptureError::MissingCode(code().hash));
        let mut odd = snapshot();
        odd.described.codes = vec![Arc::new(Code { bytecode: vec![1], ..code() })];
        assert!(matches!(result(odd), Err(CaptureError::BadCode(..))));
        // The body of one function under the hash of another.
        let mut other = snapshot();
        other.described.codes = vec![Arc::new(Code { firstlineno: 2, ..code() })];
        assert!(matches!(result(other), Err(CaptureError::BadCode(..))));
        let mut nested = snapshot();
        let inner = Code { hash: CodeHash([1; 32]), ..code() };
        let outer = Code { consts: vec![Const::Code(Arc::new(inner))], ..code() };
        nested.described.codes.push(Arc::new(Code { hash: outer.content_hash(), ..outer }));
        assert!(matches!(result(nested), Err(CaptureError::BadCode(..))));
        let other = FrameId { code: CodeHash([8; 32]), path: vec![] };
        assert!(matches!(capture(other, snapshot()), Err(CaptureError::OtherCode(..))));
    }

    #[test]
    fn contradicting_descriptions_are_refused() {
        let mut twice = snapshot();
        twice.described.objects.push(object(3, ObjectData::Opaque));
        assert_eq!(result(twice).unwrap_err(), CaptureError::BadObject(ObjId(3), "described in two ways"));
        let mut same = snapshot();
        let again = same.described.objects[2].clone();
        same.described.objects.push(again);
        assert!(result(same).is_ok());
    }

    #[test]
    fn dynamic_dims_name_what_exists() {
        let with = |object, dim| {
            let dims = vec![DynamicDim { of: DynamicOf::Size(ObjId(object), dim), min: 2, max: 8, marked: true }];
            result(Snapshot { options: TraceOptions { dynamic_dims: dims, ..Default::default() }, ..snapshot() })
        };
        assert!(with(3, 1).is_ok());
        assert!(matches!(with(3, 2), Err(CaptureError::BadDynamicDim(..))));
    }
}
