//! What is known of a tensor without its data.

use crate::device::{DeviceKind, KINDS, Runs};
use crate::dim::Dim;
use crate::kernel::DType;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// A torch device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Device {
    /// Torch's `c10::DeviceType` number: that of a line of [`KINDS`].
    pub kind: u8,
    /// Index, or -1 where none is given.
    pub index: i8,
}

impl Device {
    /// The CPU.
    pub const CPU: Device = Device { kind: 0, index: -1 };

    /// Whether it is the CPU.
    pub fn is_cpu(self) -> bool {
        self.kind == Device::CPU.kind
    }

    /// What is known of its kind.
    pub fn known(self) -> Option<&'static DeviceKind> {
        KINDS.iter().find(|kind| kind.number == self.kind)
    }

    /// How plans run on it.
    pub fn runs(self) -> Runs {
        self.known().map_or(Runs::Never, |kind| kind.runs)
    }

    /// Whether its tensors lie in the host's memory.
    pub fn is_host(self) -> bool {
        self.runs() == Runs::OnHost
    }
}

impl Default for Device {
    fn default() -> Self {
        Device::CPU
    }
}

/// Torch's own form, e.g. `cuda:0`.
impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some(kind) => f.write_str(kind.name)?,
            None => write!(f, "device type {}", self.kind)?,
        }
        if self.index < 0 { Ok(()) } else { write!(f, ":{}", self.index) }
    }
}

/// Metadata of a strided tensor. Sizes, strides and offset are in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorMeta {
    /// Element type.
    pub dtype: DType,
    /// Where it lives.
    pub device: Device,
    /// One entry per dimension.
    pub sizes: Vec<Dim>,
    /// One entry per dimension.
    pub strides: Vec<Dim>,
    /// Torch's flag, under the trace's simulated grad mode.
    pub requires_grad: bool,
}

impl TensorMeta {
    /// A contiguous tensor that requires no gradient.
    pub fn contiguous(dtype: DType, device: Device, sizes: Vec<Dim>) -> Self {
        let strides = contiguous_strides(&sizes);
        TensorMeta { dtype, device, sizes, strides, requires_grad: false }
    }

    /// Number of elements.
    pub fn numel(&self) -> Dim {
        Dim::product(&self.sizes)
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.sizes.len()
    }

    /// Whether a size or a stride differs from call to call.
    pub fn is_symbolic(&self) -> bool {
        self.sizes.iter().chain(&self.strides).any(|dim| dim.as_const().is_none())
    }
}

/// Row-major strides, in elements, as torch computes them: a size of zero counts as one.
pub fn contiguous_strides(sizes: &[Dim]) -> Vec<Dim> {
    let mut strides = vec![Dim::Const(1); sizes.len()];
    for d in (0..sizes.len().saturating_sub(1)).rev() {
        let size = if sizes[d + 1].is(0) { Dim::Const(1) } else { sizes[d + 1].clone() };
        strides[d] = strides[d + 1].mul(&size);
    }
    strides
}

/// Whether every element has its own place, and none is left out.
pub fn is_dense(sizes: &[Dim], strides: &[Dim]) -> bool {
    let mut dims: Vec<_> = sizes.iter().zip(strides).filter(|(size, _)| !size.is(1)).collect();
    if dims.iter().any(|(_, stride)| stride.as_const().is_none()) {
        return *strides == contiguous_strides(sizes)[..];
    }
    dims.sort_by_key(|(_, stride)| stride.as_const());
    let mut next = Dim::Const(1);
    dims.into_iter().all(|(size, stride)| {
        let fits = next == *stride;
        next = next.mul(size);
        fits
    })
}

/// Strides with the channels (dimension 1) next to each other; row-major ones where there are no images.
pub fn channels_last(sizes: &[Dim]) -> Vec<Dim> {
    if !(4..=5).contains(&sizes.len()) {
        return contiguous_strides(sizes);
    }
    let mut strides = vec![Dim::Const(1); sizes.len()];
    let mut step = sizes[1].clone();
    for d in (2..sizes.len()).rev().chain([0]) {
        strides[d] = step.clone();
        step = step.mul(&sizes[d]);
    }
    strides
}

/// A tensor object of the client, in a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorDesc {
    /// Its metadata; all sizes are constants here.
    pub meta: TensorMeta,
    /// Elements from the start of the storage.
    pub storage_offset: i64,
    /// Same number, same storage; numbers mean nothing outside the snapshot.
    pub storage: u32,
    /// `DispatchKeySet::raw_repr()`.
    pub dispatch_keys: u64,
    /// Whether it is a leaf (`is_leaf`) or a view (`_base` is not `None`).
    pub is_leaf_or_view: bool,
    /// A tensor made under inference mode.
    pub is_inference: bool,
    /// Conjugate or negative bit set, not strided, sparse, quantised, nested, subclass with `__torch_function__`, fake or
    /// functional tensors: says which. Such a tensor is a named graph break.
    pub unusual: Option<String>,
}
