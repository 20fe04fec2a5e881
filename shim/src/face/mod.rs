//! What Python sees: the module `flambeau._native`, reports, and what tests ask for.

mod module;
mod plugin;
mod report;
#[cfg(feature = "testing")]
mod testing;
#[cfg(feature = "testing")]
mod testing_facts;
#[cfg(feature = "testing")]
mod testing_hostile;
