//! Kinds of devices: one line a kind, which says what passes and the client ask of it.

/// A kind of device.
#[derive(Debug, PartialEq, Eq)]
pub struct DeviceKind {
    /// Torch's `c10::DeviceType`.
    pub number: u8,
    /// Torch's `device.type`, also in the names of its C functions for the kind.
    pub name: &'static str,
    /// How plans run on it.
    pub runs: Runs,
}

/// How plans run on a kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// They do not: graphs run op by op.
    Never,
    /// In the calling thread, on the host's memory. Rules of ops were recorded there; layouts and the order of calls are chosen for
    /// its caches.
    OnHost,
    /// In order on torch's current stream of a numbered device, on memory of torch's.
    OnStream,
}

/// In the order of torch's numbers. A kind that is not here breaks where a program names it.
pub static KINDS: &[DeviceKind] = &[
    kind(0, "cpu", Runs::OnHost),
    kind(1, "cuda", Runs::OnStream),
    kind(2, "mkldnn", Runs::Never),
    kind(8, "maia", Runs::Never),
    kind(9, "xla", Runs::Never),
    kind(10, "vulkan", Runs::Never),
    kind(12, "xpu", Runs::Never),
    kind(13, "mps", Runs::Never),
    kind(14, "meta", Runs::Never),
    kind(18, "ipu", Runs::Never),
    kind(19, "mtia", Runs::Never),
    kind(20, "privateuseone", Runs::Never),
];

const fn kind(number: u8, name: &'static str, runs: Runs) -> DeviceKind {
    DeviceKind { number, name, runs }
}

/// How many kinds plans run on.
pub const RUNNING: usize = {
    let (mut at, mut count) = (0, 0);
    while at < KINDS.len() {
        count += !matches!(KINDS[at].runs, Runs::Never) as usize;
        at += 1;
    }
    count
};

impl DeviceKind {
    /// The kind with this name.
    pub fn named(name: &str) -> Option<&'static DeviceKind> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The kinds that plans run on, of which torch's state is part of guards: [`RUNNING`] of them.
    pub fn running() -> impl Iterator<Item = &'static DeviceKind> {
        KINDS.iter().filter(|kind| kind.runs != Runs::Never)
    }

    /// The kind whose memory a back end computes on that takes torch's: that of the same name, else the first there is.
    pub fn of_streams(backend: &str) -> Option<&'static DeviceKind> {
        let mut kinds = KINDS.iter().filter(|kind| kind.runs == Runs::OnStream);
        kinds.clone().find(|kind| kind.name == backend).or_else(|| kinds.next())
    }
}
