//! Codegen: kernels to artifacts, from the cache where they were compiled before, else through plug-in workers.

use super::{Station, station};
use crate::hub::job::{Job, Outcome, Stage};
use crate::hub::messages::{CacheMessage, CodegenMessage, GuardMessage};
use crate::hub::pool::{Pool, PoolOptions};
use crate::hub::{Hub, count};
use crate::stages::{self, Pending};
use flambeau_codegen::kernel_hash;
use flambeau_ir::kernel::Kernel;
use flambeau_ir::reason::{Reason, ReasonCode};
use flambeau_wire::from_daemon::Artifact;
use flambeau_wire::registry;
use std::sync::Arc;

/// Runs code generation.
pub struct Codegen {
    hub: Arc<Hub>,
    pool: Pool,
}

station!(Codegen, CodegenMessage);

impl Station for Codegen {
    type Told = CodegenMessage;

    fn new(hub: Arc<Hub>) -> Self {
        let pool = Pool::new(&hub, PoolOptions { name: "codegen", threads: 4, waiting: 256, stack: 4 << 20 });
        Codegen { hub, pool }
    }
}

impl Codegen {
    fn on(&mut self, message: CodegenMessage) {
        let hub = self.hub.clone();
        match message {
            CodegenMessage::Prewarm(settings) => {
                let _ = self.pool.offer(move || {
                    let chosen = registry::read(&settings.data_dir).unwrap_or_default();
                    let (plugin, _) =
                        hub.backends.find(chosen.default_name(), &settings.plugin_path, &settings.data_dir);
                    if let Err(error) = hub.backends.of(&plugin).codegen.prewarm(&plugin.name) {
                        tracing::info!(%error, "no code generator yet");
                    }
                });
            }
            CodegenMessage::Compile(job, pending) => {
                let work = job.clone();
                let accepted = self.pool.offer(move || {
                    let compiled = work.run(&hub, Stage::Codegen, || artifacts(&hub, &work, &pending));
                    let (frame, artifacts) = stages::finish(*pending, compiled);
                    hub.guard.tell(GuardMessage::Finished(work, Outcome::Compiled(Arc::new(frame), artifacts)));
                });
                if !accepted {
                    self.hub.guard.tell(GuardMessage::Finished(job, Outcome::Later));
                }
            }
        }
    }
}

/// One artifact per kernel, in order. Only kernels that the cache lacks are compiled.
fn artifacts(hub: &Hub, job: &Job, pending: &Pending) -> Result<Vec<Artifact>, Reason> {
    let unavailable = |why: String| Reason::new(ReasonCode::BackendUnavailable, why);
    let plugin =
        job.plugin.as_ref().ok_or_else(|| unavailable(format!("no build of {} was named", pending.backend)))?;
    let folder = hub.backends.of(plugin);
    let build = folder.fingerprint(plugin);
    let target = &job.key.target;
    let hashes: Vec<[u8; 32]> = pending.kernels.iter().map(|k| kernel_hash(build, target, k)).collect();
    let mut known = cached(hub, &hashes);
    let missing: Vec<usize> = (0..hashes.len()).filter(|i| known[*i].is_none()).collect();
    if !missing.is_empty() {
        let kernels: Vec<Kernel> = missing.iter().map(|i| pending.kernels[*i].clone()).collect();
        let fresh = folder.codegen.compile(&pending.backend, &kernels, target);
        let fresh = fresh.map_err(|e| unavailable(e.to_string()))?;
        for (at, artifact) in missing.iter().zip(&fresh) {
            count(&hub.counters.kernels);
            hub.cache.tell(CacheMessage::StoreKernel(hashes[*at], artifact.clone()));
            known[*at] = Some(artifact.clone());
        }
    }
    Ok(known.into_iter().flatten().collect())
}

fn cached(hub: &Hub, hashes: &[[u8; 32]]) -> Vec<Option<Artifact>> {
    let (sender, receiver) = crossbeam_channel::bounded(1);
    hub.cache.tell(CacheMessage::Kernels(hashes.to_vec(), sender));
    let found = receiver.recv().unwrap_or_default();
    found.iter().flatten().for_each(|_| count(&hub.counters.kernels_cached));
    if found.len() == hashes.len() { found } else { vec![None; hashes.len()] }
}
