//! The consumer of a queue that may send mail to so many a second, whatever waits in the queue.
//!
//! `cargo run --example queue_consumer` takes two seconds, and says when each mail
//! goes. A mail costs as many permits as it has recipients. The large one has more than may ever go at once: it is paid for in
//! instalments, and is late by as much.

use diana::core::{InvalidQuota, Limiter, Quota};
use diana::pace::StreamExt as _;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A message.
pub(crate) struct Mail {
    pub(crate) recipients: u64,
}

/// Ten recipients a second, evenly.
pub(crate) fn rate() -> Result<Quota, InvalidQuota> {
    Quota::per_second(10)?.with_burst(1)
}

/// A queue into which somebody has put a lot at once.
pub(crate) fn queue() -> impl Stream<Item = Mail> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for recipients in [1, 1, 1, 5, 1, 1, 1, 10] {
        // The receiver is there, so this can't fail.
        let _ = sender.send(Mail { recipients });
    }
    stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
}

/// Handles what comes out of the queue, each when its turn has come.
pub(crate) async fn consume(queue: impl Stream<Item = Mail>, limiter: Limiter, mut handle: impl FnMut(Mail)) {
    let mut mails = Box::pin(queue.rate_limited(limiter).cost(|mail| mail.recipients));
    while let Some(mail) = mails.next().await {
        handle(mail);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), InvalidQuota> {
    println!("Eight mails wait, and 10 recipients a second may get one.");
    let (began, mut recipients) = (Instant::now(), 0);
    consume(queue(), Limiter::new(rate()?), |mail| {
        recipients += mail.recipients;
        let names = if mail.recipients == 1 { "recipient" } else { "recipients" };
        println!("after {:.1} s: a mail to {} {names}", began.elapsed().as_secs_f64(), mail.recipients);
    })
    .await;
    println!(
        "{recipients} recipients in {:.1} s: the first at once, the others one each 0.1 s.",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
