//! Types.

use super::Origin;
use flambeau_ir::guard::ClassRef;
use flambeau_ir::object::{ObjId, Object, ObjectData};
use std::rc::Rc;
use std::sync::Arc;

/// A type: from outside, or a built-in one known by its path only.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a type, each under its own name")]
pub struct Class {
    /// Import path in a trusted root, e.g. `builtins.list`, `torch.nn.modules.linear.Linear`, `torch.Size`.
    pub path: Option<Arc<str>>,
    /// `__module__` and `__qualname__`.
    pub name: ClassRef,
    /// `__name__`
    pub own_name: Arc<str>,
    /// Where it is from; `None` for a built-in type that was not read from outside.
    pub origin: Option<Origin>,
    /// `__mro__` as objects, itself first; empty for a built-in type known by path only.
    pub mro: Vec<ObjId>,
    /// Paths along the MRO (the ones that have one), itself first.
    pub mro_paths: Vec<Arc<str>>,
    /// Made by a `class` statement.
    pub is_python: bool,
    /// No `__getattribute__` of its own.
    pub generic_getattr: bool,
    /// No `__setattr__` of its own.
    pub generic_setattr: bool,
    /// Instances have a `__dict__`.
    pub has_dict: bool,
}

/// What the types that module `types` gives public names call themselves.
const OWN_NAMES: &[(&str, &str)] = &[
    ("types.FunctionType", "function"),
    ("types.MethodType", "method"),
    ("types.MethodDescriptorType", "method_descriptor"),
    ("types.BuiltinFunctionType", "builtin_function_or_method"),
    ("types.ModuleType", "module"),
    ("types.CellType", "cell"),
    ("types.GeneratorType", "generator"),
    ("types.GetSetDescriptorType", "getset_descriptor"),
    ("types.MemberDescriptorType", "member_descriptor"),
    ("types.CodeType", "code"),
    ("types.NoneType", "NoneType"),
    ("types.EllipsisType", "ellipsis"),
    ("types.NotImplementedType", "NotImplementedType"),
    ("types.TracebackType", "traceback"),
    ("types.MappingProxyType", "mappingproxy"),
    ("types.CoroutineType", "coroutine"),
    ("types.AsyncGeneratorType", "async_generator"),
    ("types.MethodWrapperType", "method-wrapper"),
    ("types.WrapperDescriptorType", "wrapper_descriptor"),
    ("types.ClassMethodDescriptorType", "classmethod_descriptor"),
];

/// Types of the interpreter that no module `builtins` has.
const NAMELESS: &[&str] = &[
    "async_generator",
    "builtin_function_or_method",
    "cell",
    "code",
    "coroutine",
    "dict_items",
    "dict_keys",
    "dict_values",
    "frame",
    "function",
    "generator",
    "getset_descriptor",
    "iterator",
    "mappingproxy",
    "member_descriptor",
    "method",
    "method_descriptor",
    "module",
    "odict_items",
    "odict_keys",
    "odict_values",
    "traceback",
];

/// Whether nothing is at this path of a type: some types of the interpreter have no public name.
pub(crate) fn is_nameless(path: &str) -> bool {
    path.strip_prefix("builtins.").is_some_and(|name| NAMELESS.contains(&name))
}

impl Class {
    /// What messages call it: the name of a type of C begins with its module.
    pub(crate) fn tp_name(&self) -> String {
        let module = &self.name.module;
        if self.is_python || **module == *"builtins" {
            self.own_name.to_string()
        } else {
            format!("{module}.{}", self.own_name)
        }
    }

    /// The path by which module `types` has a type of the interpreter that no module `builtins` has.
    pub(crate) fn path_in_types(&self) -> Option<&'static str> {
        let own = self.path.as_deref()?.strip_prefix("builtins.")?;
        OWN_NAMES.iter().find(|(_, name)| *name == own).map(|(public, _)| *public)
    }

    /// Stands for the type of a built-in iterator where the trace does not keep which one it is.
    pub const SOME_ITERATOR: &str = "builtins.iterator";

    /// A built-in type by path, with its bases' paths (without `builtins.object`).
    pub fn builtin(path: &str, bases: &[&str]) -> Rc<Class> {
        let (module, qualname) = match OWN_NAMES.iter().find(|(public, _)| *public == path) {
            Some((_, own)) => ("builtins", *own),
            None => path.rsplit_once('.').unwrap_or(("builtins", path)),
        };
        let mut mro_paths: Vec<Arc<str>> = vec![path.into()];
        mro_paths.extend(bases.iter().map(|b| Arc::from(*b)));
        mro_paths.push("builtins.object".into());
        Rc::new(Class {
            path: Some(path.into()),
            name: ClassRef { module: module.into(), qualname: qualname.into() },
            own_name: qualname.rsplit('.').next().unwrap_or(qualname).into(),
            origin: None,
            mro: vec![],
            mro_paths,
            is_python: false,
            generic_getattr: true,
            generic_setattr: true,
            has_dict: false,
        })
    }

    /// Whether it cannot be read from where its path says.
    pub(crate) fn is_nameless(&self) -> bool {
        self.origin.is_none() && self.path.as_deref().is_some_and(is_nameless)
    }

    /// Whether the client finds it at its path: types that the trace knows by a path alone may have another to the client.
    pub(crate) fn is_at_its_path(&self) -> bool {
        let known = |path: &str| (path.starts_with("builtins.") || path.starts_with("torch.")) && !is_nameless(path);
        self.path.as_deref().is_some_and(|path| self.origin.is_some() || known(path))
    }

    /// True if this is the type with that path.
    pub fn is(&self, path: &str) -> bool {
        self.path.as_deref() == Some(path)
    }

    /// True if the type with that path is in its MRO.
    pub fn derives(&self, path: &str) -> bool {
        self.mro_paths.iter().any(|p| &**p == path)
    }

    /// `self is other`.
    pub fn same(&self, other: &Class) -> bool {
        match (&self.origin, &other.origin) {
            (Some(a), Some(b)) => a.object == b.object,
            _ => {
                self.path.is_some() && self.path == other.path
                    || self.is_interpreters() && other.is_interpreters() && self.name == other.name
            }
        }
    }

    /// As [`Class::same`], for what the client says of an object; for a type that the trace knows by its path alone.
    pub(crate) fn is_described_by(&self, object: &Object) -> bool {
        let ObjectData::Class(other) = &object.data else { return false };
        let of_interpreter = !other.is_python && &*other.module == "builtins";
        let name = (&self.name.module, &self.name.qualname);
        self.path.is_some() && self.path == object.path
            || self.is_interpreters() && of_interpreter && name == (&other.module, &other.qualname)
    }

    /// A type of the interpreter itself: its name tells which. Some have no path, as no built-in name is theirs.
    pub(crate) fn is_interpreters(&self) -> bool {
        !self.is_python && &*self.name.module == "builtins"
    }

    /// `issubclass(self, other)`, without `__subclasscheck__`.
    pub fn is_subclass(&self, other: &Class) -> bool {
        if self.same(other) {
            return true;
        }
        match &other.origin {
            Some(o) if self.mro.contains(&o.object) => true,
            _ => other.path.as_ref().is_some_and(|p| self.mro_paths.contains(p)),
        }
    }

    /// A number equal for the same type only.
    pub(crate) fn identity(&self) -> usize {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        match (&self.path, &self.origin) {
            _ if self.is_interpreters() => self.name.hash(&mut hasher),
            (Some(p), _) => p.hash(&mut hasher),
            (None, Some(o)) => o.object.hash(&mut hasher),
            (None, None) => self.name.hash(&mut hasher),
        }
        hasher.finish() as usize
    }
}
