//! The client that waits for a compile answers its questions.

use crate::base::lock;
use crate::base::wire_out::Outbox;
use crate::hub::job::Job;
use crate::hub::{ClientId, Hub};
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use flambeau_ir::bounds;
use flambeau_ir::oracle::{Answer, Oracle, OracleError, Question};
use flambeau_wire::from_client::RequestId;
use flambeau_wire::from_daemon::FromDaemon;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the only client of a compile may take to answer. Importing torch's fake-tensor machinery takes 1.4 s.
const PATIENCE: Duration = Duration::from_secs(50);
/// As [`PATIENCE`], when another client waits for the same compile and could answer instead.
const PATIENCE_SHARED: Duration = Duration::from_secs(5);
/// How often a waiting trace looks whether the daemon stops or another client joined.
const TICK: Duration = Duration::from_millis(200);

/// The client that answers a compile's questions.
#[derive(Clone)]
pub struct Asker {
    /// Which client.
    pub client: ClientId,
    /// Its request.
    pub request: RequestId,
    /// The way to it.
    pub outbox: Outbox,
}

/// Questions in flight: who is to answer, and who waits. A dropped sender wakes the waiting trace with an error.
#[derive(Default)]
pub struct Questions(Mutex<HashMap<(ClientId, RequestId), Sender<Vec<Answer>>>>);

impl Questions {
    /// Hands answers to the trace that waits for them; late ones are dropped.
    pub fn answer(&self, client: ClientId, request: RequestId, answers: Vec<Answer>) {
        if let Some(waiting) = lock(&self.0).remove(&(client, request)) {
            let _ = waiting.try_send(answers);
        }
    }

    /// Nothing will be answered for this request any more.
    pub fn abandon(&self, client: ClientId, request: RequestId) {
        lock(&self.0).remove(&(client, request));
    }

    /// Nothing will be answered by this client any more.
    pub fn abandon_client(&self, client: ClientId) {
        lock(&self.0).retain(|(c, _), _| *c != client);
    }
}

/// Asks the client of a compile over its session.
pub struct SessionOracle<'a> {
    hub: &'a Hub,
    job: &'a Job,
    /// The client is gone or does not answer: another may be asked, from the start.
    pub lost: bool,
    /// Time spent waiting for answers.
    pub waited: Duration,
}

impl<'a> SessionOracle<'a> {
    /// An oracle for one trace of `job`.
    pub fn new(hub: &'a Hub, job: &'a Job) -> Self {
        SessionOracle { hub, job, lost: false, waited: Duration::ZERO }
    }

    fn lose(&mut self, why: &str) -> OracleError {
        self.lost = true;
        OracleError(why.to_owned())
    }

    fn wait(&mut self, asker: &Asker, questions: &[Question]) -> Result<Vec<Answer>, OracleError> {
        let slot = (asker.client, asker.request);
        let (sender, receiver) = bounded(1);
        lock(&self.hub.questions.0).insert(slot, sender);
        let message = FromDaemon::Questions { request: asker.request, questions: questions.to_vec() };
        if !asker.outbox.send(&message) {
            self.hub.questions.abandon(slot.0, slot.1);
            return Err(self.lose("it disconnected"));
        }
        let start = Instant::now();
        loop {
            match receiver.recv_timeout(TICK) {
                Ok(answers) => return Ok(answers),
                Err(RecvTimeoutError::Disconnected) => return Err(self.lose("it went away")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let shared = self.job.waiters.load(Ordering::Relaxed) > 1;
            let patience = if shared { PATIENCE_SHARED } else { PATIENCE };
            if start.elapsed() > patience || self.hub.closing.load(Ordering::Relaxed) {
                self.hub.questions.abandon(slot.0, slot.1);
                return Err(self.lose("no answer in time"));
            }
        }
    }
}

impl Oracle for SessionOracle<'_> {
    fn ask(&mut self, questions: &[Question]) -> Result<Vec<Answer>, OracleError> {
        let asker = lock(&self.job.asker).clone();
        let Some(asker) = asker else { return Err(self.lose("nobody waits for it")) };
        let start = Instant::now();
        let answers = self.wait(&asker, questions);
        self.waited += start.elapsed();
        bounds::waited(start.elapsed());
        let answers = answers?;
        if answers.len() != questions.len() {
            return Err(OracleError(format!("{} answers to {} questions", answers.len(), questions.len())));
        }
        for answer in &answers {
            flambeau_capture::check_answer(&answer.described).map_err(|error| OracleError(error.to_string()))?;
        }
        Ok(answers)
    }
}
