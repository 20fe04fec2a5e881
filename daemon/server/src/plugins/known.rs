//! All back ends that a user has, as a JSON document.

use crate::plugins::backends::Backends;
use crate::plugins::inspect::{self, Inspected};
use flambeau_wire::registry::{self, Chosen, Origin};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The back end that needs no plug-in.
pub const EAGER: &str = "eager";

/// All back ends that these settings know.
pub fn known(backends: &Backends, plugin_path: &[PathBuf], data_dir: &Path) -> Value {
    let (chosen, problem) = match registry::read(data_dir) {
        Ok(chosen) => (chosen, None),
        Err(error) => (Chosen::default(), Some(error.to_string())),
    };
    let places = backends.places(plugin_path, data_dir, &chosen);
    let row = |name: &String| {
        let builds = places.builds(name);
        let mut row = json!({ "name": name, "default": name == chosen.default_name() });
        let Some(((plugin, origin), hidden)) = builds.split_first() else { return row };
        row["from"] = json!(from(*origin));
        row["compile"] = json!(plugin.compile_half());
        row["launch"] = json!(plugin.launch_half());
        row["hides"] = json!(hidden.iter().map(|(plugin, _)| &plugin.folder).collect::<Vec<_>>());
        match inspect::plugin(backends, plugin, backends.patience()) {
            Ok(Inspected { version, targets, launch }) => {
                row["available"] = json!(true);
                row["why"] = json!("");
                row["version"] = json!(version);
                row["targets"] = json!(targets);
                row["memory"] = json!(launch.memory);
                row["devices"] = json!(launch.devices);
            }
            Err(why) => {
                row["available"] = json!(false);
                row["why"] = json!(why.to_string());
            }
        }
        row
    };
    let mut rows: Vec<Value> = places.names().iter().map(row).collect();
    rows.push(json!({
        "name": EAGER, "default": chosen.default_name() == EAGER, "available": true, "from": "built in",
        "why": "", "version": env!("CARGO_PKG_VERSION"),
    }));
    json!({ "backends": rows, "default": chosen.default_name(), "folder": registry::folder(data_dir), "problem": problem })
}

/// In words.
pub fn from(origin: Origin) -> &'static str {
    match origin {
        Origin::Path => "plug-in path",
        Origin::Added => "added",
        Origin::Shipped => "shipped",
    }
}
