//! Torch without Python: its exported C functions, found in the libraries that `import torch` loaded, and borrowed handles
//! to the tensors inside Python objects. Nothing here is used before [`Torch::get`] has checked it on probe tensors.

pub mod ambient;
mod calibrate;
pub mod fake;
mod form;
mod layout;
pub mod outside;
mod owned;

pub use form::{Facts, Form};
pub use owned::Owned;

use crate::python::gil::GilOnce;
use crate::python::raw::Raw;
use crate::torch::outside::outside;
use flambeau_ir::kernel::DType;
use flambeau_ir::tensor::Device;
use layout::Layout;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_void};

/// An `AtenTensorHandle`: a pointer to an `at::Tensor`.
pub type Handle = *mut c_void;

/// What C functions return: zero for success.
pub type Status = i32;

macro_rules! functions {
    ($($field:ident = $symbol:literal : fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// Torch's C functions, by what they do.
        pub struct Functions { $(pub $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)* }

        impl Functions {
            fn load(find: &dyn Fn(&CStr) -> *mut c_void) -> Result<Functions, String> {
                $(
                    let address = find($symbol);
                    if address.is_null() {
                        return Err(format!("torch exports no {:?}", $symbol));
                    }
                    // SAFETY: the symbol has this C signature in torch's public headers.
                    let $field = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(address)
                    };
                )*
                Ok(Functions { $($field,)* })
            }
        }
    };
}

functions! {
    dim = c"aoti_torch_get_dim": fn(Handle, *mut i64) -> Status;
    sizes = c"aoti_torch_get_sizes": fn(Handle, *mut *mut i64) -> Status;
    strides = c"aoti_torch_get_strides": fn(Handle, *mut *mut i64) -> Status;
    dtype = c"aoti_torch_get_dtype": fn(Handle, *mut i32) -> Status;
    device_type = c"aoti_torch_get_device_type": fn(Handle, *mut i32) -> Status;
    device_index = c"aoti_torch_get_device_index": fn(Handle, *mut i32) -> Status;
    data = c"aoti_torch_get_data_ptr": fn(Handle, *mut *mut c_void) -> Status;
    storage_offset = c"aoti_torch_get_storage_offset": fn(Handle, *mut i64) -> Status;
    storage_size = c"aoti_torch_get_storage_size": fn(Handle, *mut i64) -> Status;
    numel = c"aoti_torch_get_numel": fn(Handle, *mut i64) -> Status;
    empty_strided = c"aoti_torch_empty_strided": fn(i64, *const i64, *const i64, i32, i32, i32, *mut Handle) -> Status;
    reinterpret = c"aoti_torch__reinterpret_tensor": fn(Handle, i64, *const i64, *const i64, i64, *mut Handle) -> Status;
    new_handle = c"aoti_torch_new_tensor_handle": fn(Handle, *mut Handle) -> Status;
    delete = c"aoti_torch_delete_tensor_object": fn(Handle) -> Status;
    num_threads = c"torch_get_num_threads": fn(*mut u32) -> Status;
    requires_grad = c"_ZNK3c1010TensorImpl13requires_gradEv": fn(*const c_void) -> bool;
    grad_enabled = c"aoti_torch_grad_mode_is_enabled": fn() -> bool;
    set_grad_enabled = c"aoti_torch_grad_mode_set_enabled": fn(bool);
}

/// Torch's C interface, checked against Python's answers in this process.
pub struct Torch {
    /// The functions.
    pub c: Functions,
    wrap: Wrap,
    /// The text of the thread's last exception, where torch keeps it.
    what: Option<What>,
    /// Byte offset of the dispatch key word in a `c10::TensorImpl`.
    keys_offset: usize,
    /// Where the rest is, if it was found; else torch's functions are asked.
    layout: Option<Layout>,
    /// `torch.Tensor`, kept alive by torch.
    tensor_class: usize,
    /// `torch.nn.Parameter`, kept alive by torch.
    parameter_class: usize,
    libraries: Vec<usize>,
}

/// Gives a new tensor object for a handle.
enum Wrap {
    /// `torch_tensor_to_pyobject`, from torch 2.14 on; a null class means `torch.Tensor`.
    C(unsafe extern "C" fn(Handle, *mut c_void, *mut Raw) -> Status),
    /// `THPVariable_Wrap(const at::TensorBase&)` of `torch/csrc/autograd/python_variable.h`.
    Cpp(unsafe extern "C" fn(Handle) -> Raw),
}

/// `torch_exception_get_what_without_backtrace`
type What = unsafe extern "C" fn() -> *const c_char;

impl Wrap {
    fn load(find: &dyn Fn(&CStr) -> *mut c_void) -> Option<Wrap> {
        let (c, cpp) = (find(c"torch_tensor_to_pyobject"), find(c"_Z16THPVariable_WrapRKN2at10TensorBaseE"));
        // SAFETY: the symbols have these signatures in torch's headers; a reference is a pointer.
        unsafe {
            if !c.is_null() {
                return Some(Wrap::C(std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Handle, *mut c_void, *mut Raw) -> Status,
                >(c)));
            }
            (!cpp.is_null())
                .then(|| Wrap::Cpp(std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Handle) -> Raw>(cpp)))
        }
    }
}

/// Byte offset of the `at::Tensor` in a Python tensor object.
const TENSOR_OFFSET: usize = 16;

impl Torch {
    /// The interface, or one sentence saying why it cannot be used in this process.
    pub fn get(py: Python<'_>) -> Result<&'static Torch, String> {
        static TORCH: GilOnce<Result<Torch, String>> = GilOnce::new();
        TORCH.get_or_init(py, || calibrate::load(py)).as_ref().map_err(Clone::clone)
    }

    /// What torch is asked for at each call because it was not found in tensors: right, but several times slower.
    pub fn asked(&self) -> Vec<&'static str> {
        let Some(layout) = &self.layout else { return vec!["sizes", "strides", "types", "gradients", "addresses"] };
        let unknown = [
            ("gradients", layout.required.is_none() || layout.plain.is_none()),
            ("addresses", layout.memory.is_none()),
        ];
        unknown.into_iter().filter_map(|(what, asked)| asked.then_some(what)).collect()
    }

    /// The address of an exported symbol, or null.
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        find(&self.libraries, name)
    }

    /// Whether this is `torch.Tensor` itself.
    #[inline]
    pub fn is_tensor_class(&self, class: Raw) -> bool {
        class as usize == self.tensor_class
    }

    /// Whether the object is a `torch.Tensor` or an instance of a subclass.
    ///
    /// # Safety
    /// A live object, GIL held.
    pub unsafe fn is_tensor(&self, object: Raw) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let class = pyo3::ffi::Py_TYPE(object);
            class as usize == self.tensor_class
                || class as usize == self.parameter_class
                || pyo3::ffi::PyType_IsSubtype(class, self.tensor_class as *mut _) != 0
        }
    }

    /// Whether the object's type is exactly `torch.Tensor` or `torch.nn.Parameter`.
    ///
    /// # Safety
    /// A live object, GIL held.
    pub unsafe fn is_plain_tensor(&self, object: Raw) -> bool {
        // SAFETY: the caller's promise.
        let class = unsafe { pyo3::ffi::Py_TYPE(object) } as usize;
        class == self.tensor_class || class == self.parameter_class
    }

    /// The borrowed handle inside a tensor object.
    ///
    /// # Safety
    /// [`Torch::is_tensor`] holds of the object; the handle lives as long as it.
    pub unsafe fn handle(&self, tensor: Raw) -> Handle {
        // SAFETY: the offset was checked on probes.
        unsafe { tensor.cast::<u8>().add(TENSOR_OFFSET).cast() }
    }

    /// The tensor object that a borrowed handle is inside of: [`Torch::handle`] taken back.
    pub fn object(&self, handle: Handle) -> Raw {
        handle.cast::<u8>().wrapping_sub(TENSOR_OFFSET).cast()
    }

    /// Number of elements.
    ///
    /// # Safety
    /// As [`Torch::keys`].
    pub unsafe fn numel(&self, handle: Handle) -> i64 {
        // SAFETY: as `keys`.
        unsafe {
            match self.layout {
                Some(layout) => layout.numel(*handle.cast()),
                None => {
                    let mut elements = 0;
                    (self.c.numel)(handle, &raw mut elements);
                    elements
                }
            }
        }
    }

    /// `DispatchKeySet::raw_repr()`.
    ///
    /// # Safety
    /// A live handle of a defined tensor; so for all functions below.
    pub unsafe fn keys(&self, handle: Handle) -> u64 {
        // SAFETY: the first word of an `at::Tensor` is its `TensorImpl`; the offset was checked on probes.
        unsafe { *(*handle.cast::<*const u64>()).byte_add(self.keys_offset) }
    }

    /// The words that tensors with these facts have; `None` where facts have to be compared one by one.
    pub fn form(&self, facts: &Facts<'_>) -> Option<Form> {
        self.layout.as_ref()?.form(facts, self.keys_offset / 8)
    }

    /// The address of the first element of a tensor that has the form and requires a gradient or not; null where torch has
    /// to be asked for it. `None` of other tensors.
    ///
    /// # Safety
    /// As [`Torch::keys`].
    #[expect(clippy::inline_always, reason = "a call costs a third of what it does")]
    #[inline(always)]
    pub unsafe fn fit(&self, handle: Handle, form: &Form, requires_grad: bool) -> Option<*mut c_void> {
        let layout = self.layout.as_ref()?;
        // SAFETY: as `keys`.
        unsafe {
            let body = *handle.cast::<*const u64>();
            if !form.fits(handle) {
                return None;
            }
            let found = layout.requires_grad(body).unwrap_or_else(|| (self.c.requires_grad)(body.cast()));
            (found == requires_grad).then(|| layout.data(body).unwrap_or(std::ptr::null_mut()))
        }
    }

    /// Torch's flag.
    ///
    /// # Safety
    /// As [`Torch::keys`].
    pub unsafe fn requires_grad(&self, handle: Handle) -> bool {
        // SAFETY: as `keys`.
        unsafe {
            let body = *handle.cast::<*const c_void>();
            let known = self.layout.and_then(|layout| layout.requires_grad(body.cast()));
            known.unwrap_or_else(|| (self.c.requires_grad)(body))
        }
    }

    /// Sizes, in elements. Borrowed from the tensor.
    ///
    /// # Safety
    /// As [`Torch::keys`]; the tensor is strided.
    pub unsafe fn sizes<'a>(&self, handle: Handle) -> &'a [i64] {
        // SAFETY: torch gives a pointer to `dim` values.
        unsafe {
            match self.layout {
                Some(layout) => layout.sizes(*handle.cast()),
                None => self.dims(handle, self.c.sizes),
            }
        }
    }

    /// Strides, in elements. Borrowed from the tensor.
    ///
    /// # Safety
    /// As [`Torch::sizes`].
    pub unsafe fn strides<'a>(&self, handle: Handle) -> &'a [i64] {
        // SAFETY: as `sizes`.
        unsafe {
            match self.layout {
                Some(layout) => layout.strides(*handle.cast()),
                None => self.dims(handle, self.c.strides),
            }
        }
    }

    unsafe fn dims<'a>(
        &self,
        handle: Handle,
        read: unsafe extern "C" fn(Handle, *mut *mut i64) -> Status,
    ) -> &'a [i64] {
        let (mut dim, mut values) = (0, std::ptr::null_mut());
        // SAFETY: torch gives a pointer to `dim` values.
        unsafe {
            if (self.c.dim)(handle, &raw mut dim) != 0 || read(handle, &raw mut values) != 0 || dim == 0 {
                return &[];
            }
            std::slice::from_raw_parts(values, dim as usize)
        }
    }

    /// Bytes from the first element to the end of the last.
    ///
    /// # Safety
    /// As [`Torch::sizes`]; no stride is negative.
    pub unsafe fn bytes(&self, handle: Handle) -> u64 {
        // SAFETY: as `sizes`.
        let (sizes, strides, dtype) = unsafe { (self.sizes(handle), self.strides(handle), self.dtype(handle)) };
        if sizes.contains(&0) {
            return 0;
        }
        let last: i64 = sizes.iter().zip(strides).map(|(size, stride)| (size - 1) * stride).sum();
        (last as u64 + 1) * DType::from_torch(dtype as u8).map_or(1, DType::size) as u64
    }

    /// Torch's `ScalarType` number.
    ///
    /// # Safety
    /// As [`Torch::keys`].
    pub unsafe fn dtype(&self, handle: Handle) -> i32 {
        let mut value = -1;
        // SAFETY: as `keys`.
        unsafe {
            match self.layout {
                Some(layout) => value = layout.dtype(*handle.cast()),
                None => _ = (self.c.dtype)(handle, &raw mut value),
            }
        }
        value
    }

    /// The device; CPU has index -1.
    ///
    /// # Safety
    /// As [`Torch::keys`].
    pub unsafe fn device(&self, handle: Handle) -> Device {
        let (mut kind, mut index) = (0, -1);
        // SAFETY: as `keys`.
        unsafe {
            if let Some(layout) = self.layout {
                return layout.device(*handle.cast());
            }
            (self.c.device_type)(handle, &raw mut kind);
            if kind != 0 {
                (self.c.device_index)(handle, &raw mut index);
            }
        }
        Device { kind: kind as u8, index: index as i8 }
    }

    /// Address of the first element, where torch need not be asked for it; else null.
    ///
    /// # Safety
    /// As [`Torch::sizes`].
    #[inline]
    pub unsafe fn quick_data(&self, handle: Handle) -> *mut c_void {
        // SAFETY: as `keys`.
        let known = self.layout.as_ref().and_then(|layout| unsafe { layout.data(*handle.cast()) });
        known.unwrap_or(std::ptr::null_mut())
    }

    /// Address of the first element.
    ///
    /// # Safety
    /// As [`Torch::sizes`].
    pub unsafe fn data(&self, handle: Handle) -> *mut c_void {
        // SAFETY (both): as `keys`.
        let mut data = unsafe { self.quick_data(handle) };
        if data.is_null() {
            unsafe { (self.c.data)(handle, &raw mut data) };
        }
        data
    }

    /// Elements from the start of the storage.
    ///
    /// # Safety
    /// As [`Torch::sizes`].
    pub unsafe fn storage_offset(&self, handle: Handle) -> i64 {
        let mut offset = 0;
        // SAFETY: as `keys`.
        unsafe { (self.c.storage_offset)(handle, &raw mut offset) };
        offset
    }

    /// Start and length in bytes of the storage's memory.
    ///
    /// # Safety
    /// As [`Torch::sizes`].
    pub unsafe fn storage(&self, handle: Handle) -> (usize, usize) {
        let mut size = 0;
        // SAFETY: as `keys`.
        unsafe {
            (self.c.storage_size)(handle, &raw mut size);
            let element = DType::from_torch(self.dtype(handle) as u8).map_or(1, DType::size);
            let start = (self.data(handle) as usize).wrapping_sub(self.storage_offset(handle) as usize * element);
            (start, size as usize)
        }
    }

    /// `torch.get_num_threads()`
    pub fn threads(&self) -> u32 {
        let mut threads = 1;
        // SAFETY: writes one number.
        unsafe { (self.c.num_threads)(&raw mut threads) };
        threads
    }

    /// Whether the text of an exception is known here. Torch 2.11 has no function for it.
    pub fn tells_errors(&self) -> bool {
        self.what.is_some()
    }

    /// Turns a status into the message of the exception behind it.
    pub fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: torch keeps the text of the thread's last exception.
        let message = unsafe {
            let what = self.what.map_or(std::ptr::null(), |what| what());
            if what.is_null() { None } else { CStr::from_ptr(what).to_str().ok() }
        };
        Err(message.unwrap_or("torch reported an error").to_owned())
    }

    /// A new Python tensor for what the handle refers to.
    ///
    /// # Safety
    /// As [`Torch::keys`]; the GIL is held.
    pub unsafe fn to_python(&self, py: Python<'_>, handle: Handle) -> Result<Py<PyAny>, String> {
        outside(|| {
            let mut object: Raw = std::ptr::null_mut();
            // SAFETY: torch returns a new reference.
            unsafe {
                match self.wrap {
                    Wrap::C(wrap) => self.check(wrap(handle, std::ptr::null_mut(), &raw mut object))?,
                    Wrap::Cpp(wrap) => object = wrap(handle),
                }
                Py::from_owned_ptr_or_opt(py, object).ok_or_else(|| "torch made no tensor object".to_owned())
            }
        })
    }
}

fn find(libraries: &[usize], name: &CStr) -> *mut c_void {
    libraries
        .iter()
        // SAFETY: handles of libraries that stay loaded.
        .map(|library| unsafe { libc::dlsym(*library as *mut c_void, name.as_ptr()) })
        .find(|address| !address.is_null())
        .unwrap_or(std::ptr::null_mut())
}
