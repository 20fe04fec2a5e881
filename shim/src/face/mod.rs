//! What Python sees: the module `flambeau._native`, reports, and what tests ask for.

mod module;
mod plugin;
mod report;
mod testing;
mod testing_facts;
mod testing_hostile;
