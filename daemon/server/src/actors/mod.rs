//! The actors: one file each, one message enum each. They coordinate; work runs on the threads of [`crate::pool`].

pub mod cache;
pub mod capture;
pub mod codegen;
pub mod guard;
pub mod lower;
pub mod session;
pub mod trace;

use crate::hub::Hub;
use actix::{Actor, Context, Handler, Message, Recipient};
use std::sync::Arc;

/// Messages an actor's mailbox takes before `try_send` refuses.
const MAILBOX: usize = 1024;

/// An actor of the pipeline, which the watchdog can make anew.
pub trait Station: Actor<Context = Context<Self>> + Handler<Self::Told> {
    /// What it is told.
    type Told: Message<Result = ()> + Send;

    /// A fresh one.
    fn new(hub: Arc<Hub>) -> Self;
}

/// Starts an actor on this thread's arbiter.
pub fn start<A: Station>(hub: &Arc<Hub>) -> Recipient<A::Told> {
    let hub = hub.clone();
    A::create(move |context| {
        context.set_mailbox_capacity(MAILBOX);
        A::new(hub)
    })
    .recipient()
}

/// Implements `Station`, and `Handler` with a fence round `Self::on`.
macro_rules! station {
    ($actor:ident, $message:ident) => {
        impl actix::Actor for $actor {
            type Context = actix::Context<Self>;
        }

        impl actix::Handler<$message> for $actor {
            type Result = ();

            fn handle(&mut self, message: $message, _: &mut Self::Context) {
                let hub = self.hub.clone();
                let _ = crate::hub::fence(&hub, stringify!($actor), || self.on(message));
            }
        }
    };
}
pub(crate) use station;
