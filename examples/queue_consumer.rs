//! A queue consumer that sends mail at a limited rate, however full the queue is.
//!
//! `cargo run --example queue_consumer` takes two seconds, and prints when each mail is sent. A mail costs as many
//! permits as it has recipients. The large one costs more than the burst: it is paid for in instalments, and is delayed
//! accordingly.

use diana::pace::StreamExt as _;
use diana::{InvalidQuota, Limiter, Quota};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// A message.
pub(crate) struct Mail {
    pub(crate) recipients: u64,
}

/// Ten recipients per second, evenly.
pub(crate) fn rate() -> Result<Quota, InvalidQuota> {
    Quota::per_second(10)?.with_burst(1)
}

/// Returns a queue with all mails.
pub(crate) fn queue() -> impl Stream<Item = Mail> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for recipients in [1, 1, 1, 5, 1, 1, 1, 10] {
        // The receiver exists, so this can't fail.
        let _ = sender.send(Mail { recipients });
    }
    stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
}

/// Handles each item of the queue when the limiter allows it.
pub(crate) async fn consume(queue: impl Stream<Item = Mail>, limiter: Limiter, mut handle: impl FnMut(Mail)) {
    let mut mails = Box::pin(queue.rate_limited(limiter).cost(|mail| mail.recipients));
    while let Some(mail) = mails.next().await {
        handle(mail);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), InvalidQuota> {
    println!("eight mails are queued, at 10 recipients per second");
    let (began, mut recipients) = (Instant::now(), 0);
    consume(queue(), Limiter::new(rate()?), |mail| {
        recipients += mail.recipients;
        let names = if mail.recipients == 1 { "recipient" } else { "recipients" };
        println!("after {:.1} s: a mail to {} {names}", began.elapsed().as_secs_f64(), mail.recipients);
    })
    .await;
    println!(
        "{recipients} recipients in {:.1} s: the first immediately, the others one per 0.1 s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
