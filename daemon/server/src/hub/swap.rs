//! Sees that a user's back ends changed, and tells the clients. A command asks for it at once; the watchdog looks every
//! second, because the command's daemon may be another one.

use crate::base::lock;
use crate::hub::messages::SessionMessage;
use crate::hub::{Hub, count};
use flambeau_wire::registry::{self, Stamp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The folders of users that clients named, and the record that each had when it was last looked at.
#[derive(Default)]
pub struct Watched(Mutex<BTreeMap<PathBuf, Stamp>>);

/// Looks at this folder from now on. What is there now, the client that is being greeted reads itself.
pub fn watch(hub: &Hub, data_dir: &Path) {
    lock(&hub.watched.0).entry(data_dir.to_owned()).or_insert_with(|| registry::stamp(data_dir));
}

/// Tells the clients of each folder whose record changed.
pub fn look(hub: &Hub) {
    let mut watched = lock(&hub.watched.0);
    for (data_dir, known) in watched.iter_mut() {
        let now = registry::stamp(data_dir);
        if now == *known {
            continue;
        }
        *known = now;
        count(&hub.counters.swaps);
        match registry::read(data_dir) {
            Ok(chosen) => {
                tracing::info!(?chosen, folder = %data_dir.display(), "back ends changed");
                hub.backends.retire(data_dir, &chosen);
            }
            // Clients read it too, and say so.
            Err(error) => tracing::warn!(%error, "back ends changed"),
        }
        for session in lock(&hub.sessions).values() {
            session.do_send(SessionMessage::Swapped(data_dir.clone()));
        }
    }
}
