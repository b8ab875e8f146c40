//! The example `upload` sends every byte at its rate, reports progress, and reports errors. Time is tokio's, paused.

#[path = "../../upload/main.rs"]
#[allow(dead_code, reason = "the example's `main`")]
mod example;

use diana::{Limiter, TokioClock};
use example::options::Options;
use example::progress::Progress;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The output, shared by all clones.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Said {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.lock().write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options(args: &[&str]) -> Options {
    Options::read(args.iter().map(|arg| (*arg).to_owned())).unwrap().unwrap()
}

fn limiter(options: &Options) -> Limiter {
    Limiter::new(options.rate).with_clock(TokioClock::new())
}

#[tokio::test(start_paused = true)]
async fn two_hundred_kib_take_four_seconds_and_a_line_each() {
    let (said, options) = (Said::default(), options(&[]));
    let mut progress = Progress::lines(said.clone());
    let (start, film) = (Instant::now(), vec![7; 200 * 1024]);
    progress.begin(200 * 1024, "200 KiB to nobody");
    let sent = example::send(&film[..], tokio::io::sink(), limiter(&options), &mut progress).await.unwrap();
    assert_eq!(sent.length(), 200 * 1024);
    // The first KiB is sent at once.
    assert_eq!(start.elapsed(), Duration::from_millis(3_980));
    let lines = said.text();
    let expected = "200 KiB to nobody\n  \
                    25 %  51.00 KiB of 200.00 KiB  1.0 s\n  \
                    50 %  101.00 KiB of 200.00 KiB  2.0 s\n  \
                    75 %  151.00 KiB of 200.00 KiB  3.0 s\n \
                    100 %  200.00 KiB of 200.00 KiB  4.0 s\n";
    assert_eq!(lines, expected);
}

#[tokio::test(start_paused = true)]
async fn without_a_file_and_a_target_it_checks_itself() {
    let options = options(&["--rate", "10MiB/s"]);
    let mut progress = Progress::lines(io::sink());
    let done = example::run(&options, limiter(&options), &mut progress).await.unwrap();
    assert_eq!(done, "200.00 KiB sent, and every byte arrived: checksum 80fcdc8e4cbd8325");
}

#[tokio::test(start_paused = true)]
async fn a_file_is_sent_where_one_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("film");
    std::fs::write(&path, b"the film").unwrap();
    let receiver = example::receiver::Receiver::start().await.unwrap();
    let options = options(&[path.to_str().unwrap(), "--to", &receiver.address.to_string()]);
    let done = example::run(&options, limiter(&options), &mut Progress::lines(io::sink())).await.unwrap();
    let received = receiver.finish().await.unwrap();
    assert_eq!((received.length(), done), (8, format!("8 B sent, checksum {received}")));
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_told() {
    let wrong = |args: &[&str]| Options::read(args.iter().map(|arg| (*arg).to_owned())).unwrap_err();
    assert_eq!(wrong(&["--rate", "50"]), "--rate: `50` is no rate; write an amount and a time, as 512KiB/s");
    assert_eq!(wrong(&["--to"]), "--to wants a value behind it");
    assert_eq!(wrong(&["--fast"]), "there is no option `--fast`");
    assert_eq!(wrong(&["one", "two"]), "one file at a time: `two` is a second one");

    let told = async |args: &[&str]| {
        let options = options(args);
        let done = example::run(&options, limiter(&options), &mut Progress::lines(io::sink())).await;
        done.unwrap_err().to_string()
    };
    assert!(told(&["no such file"]).await.starts_with("no such file can't be read: "));
    assert_eq!(told(&["."]).await, ". is no file");
    // A port that was just free, without a listener.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let said = told(&["--to", &address]).await;
    assert!(said.starts_with(&format!("nobody takes the upload at {address}: ")), "{said}");
}
