//! Readers and writers transfer every byte, evenly, and are only charged for transferred bytes. Time is tokio's,
//! paused: the values are exact.

use crate::pace_support::{bytes, limiter, ms};
use diana::pace::Throttled;
use diana::{FixedWindow, Limiter, Quota, TokioClock, Total};
use futures_util::FutureExt;
use proptest::prelude::*;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

/// Returns when each chunk arrived, in milliseconds from now, and its size.
async fn chunks(mut reader: impl AsyncRead + Unpin, expected: &[u8]) -> Vec<(u128, usize)> {
    let (start, mut all, mut chunks) = (Instant::now(), Vec::new(), Vec::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = reader.read(&mut buffer).await.unwrap();
        if length == 0 {
            assert_eq!(all, expected);
            // The end is not waited for.
            assert_eq!(chunks.last().map_or(0, |(at, _)| *at), start.elapsed().as_millis());
            return chunks;
        }
        all.extend_from_slice(&buffer[..length]);
        chunks.push((start.elapsed().as_millis(), length));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_returns_the_burst_immediately_and_the_rest_in_chunks_of_20_ms() {
    let input = bytes(190);
    let reader = Throttled::new(&input[..]).reads(limiter(1_000, 100));
    let even = [(0, 100), (20, 20), (40, 20), (60, 20), (80, 20), (90, 10)];
    assert_eq!(chunks(reader, &input).await, even);
}

#[tokio::test(start_paused = true)]
async fn a_slow_rate_passes_byte_by_byte() {
    let input = bytes(4);
    let reader = Throttled::new(&input[..]).reads(limiter(10, 1));
    assert_eq!(chunks(reader, &input).await, [(0, 1), (100, 1), (200, 1), (300, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_window_is_used_in_one_chunk() {
    let window = Limiter::with_algorithm(FixedWindow::new(Quota::per_second(100).unwrap()));
    let input = bytes(250);
    let found = chunks(Throttled::new(&input[..]).reads(window.with_clock(TokioClock::new())), &input).await;
    assert_eq!(found.iter().map(|(_, length)| *length).collect::<Vec<_>>(), [100, 100, 50]);
}

#[tokio::test(start_paused = true)]
async fn users_of_a_shared_budget_take_turns_with_full_chunks() {
    let (budget, input) = (limiter(1_000, 20), bytes(100));
    let readers = (0..5).map(|_| chunks(Throttled::new(&input[..]).reads(Arc::clone(&budget)), &input));
    let start = Instant::now();
    let all = futures_util::future::join_all(readers).await;
    // 500 bytes, of which 20 pass immediately.
    assert_eq!(start.elapsed(), ms(480));
    assert!(all.iter().flatten().all(|(_, length)| *length == 20), "{all:?}");
}

/// Records when each chunk was written, in milliseconds from `start`; accepts at most so many bytes at a time.
struct Peer {
    start: Instant,
    max: usize,
    received: Vec<(u128, usize)>,
    blocked: bool,
    fails: bool,
}

impl Peer {
    fn accepting(max: usize) -> Self {
        Self { start: Instant::now(), max, received: Vec::new(), blocked: false, fails: false }
    }
}

impl AsyncWrite for Peer {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.fails {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        if self.blocked {
            return Poll::Pending;
        }
        let length = from.len().min(self.max);
        let at = self.start.elapsed().as_millis();
        self.received.push((at, length));
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_writes_the_burst_immediately_and_the_rest_in_chunks_of_20_ms() {
    let mut writer = Throttled::new(Peer::accepting(1_000)).writes(limiter(1_000, 100));
    writer.write_all(&bytes(190)).await.unwrap();
    let even = [(0, 100), (20, 20), (40, 20), (60, 20), (80, 20), (90, 10)];
    assert_eq!(writer.get_ref().received, even);
}

#[tokio::test(start_paused = true)]
async fn a_short_write_is_charged_for_transferred_bytes() {
    let budget = limiter(1_000, 100);
    let mut writer = Throttled::new(Peer::accepting(7)).writes(Arc::clone(&budget));
    assert_eq!(writer.write(&bytes(50)).await.unwrap(), 7);
    assert_eq!(budget.status().remaining, 93);
    writer.write_all(&bytes(113)).await.unwrap();
    // 120 bytes, of which 100 pass immediately: however they are split, the last one passes at 20 ms.
    assert_eq!(writer.get_ref().start.elapsed(), ms(20));
}

#[tokio::test(start_paused = true)]
async fn a_failed_or_blocked_write_costs_nothing() {
    let budget = limiter(1_000, 100);
    let fails = Peer { fails: true, ..Peer::accepting(1) };
    let error = Throttled::new(fails).writes(Arc::clone(&budget)).write(&bytes(50)).await.unwrap_err();
    assert_eq!((error.kind(), budget.status().remaining), (ErrorKind::ConnectionReset, 100));

    let blocked = Peer { blocked: true, ..Peer::accepting(1) };
    let mut writer = Throttled::new(blocked).writes(Arc::clone(&budget));
    assert!(writer.write(&bytes(50)).now_or_never().is_none());
    assert_eq!(budget.status().remaining, 100);
}

#[tokio::test(start_paused = true)]
async fn a_blocked_writer_takes_one_chunk_from_the_others() {
    let budget = limiter(1_000, 20);
    let blocked = Peer { blocked: true, ..Peer::accepting(1) };
    let (mut blocked, mut busy) = (Throttled::new(blocked), Throttled::new(Peer::accepting(1_000)));
    (blocked, busy) = (blocked.writes(Arc::clone(&budget)), busy.writes(budget));
    let start = Instant::now();
    // In one task, so the blocked one is polled whenever the other is.
    tokio::select! {
        biased;
        _ = blocked.write(&[7; 100]) => panic!("it is blocked"),
        done = busy.write_all(&[7; 1_000]) => done.unwrap(),
    }
    // 1,000 bytes: 20 pass immediately, and the other holds 20.
    assert_eq!(start.elapsed(), ms(1_000));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_waiting_user_refunds_its_chunk() {
    let (budget, input) = (limiter(1_000, 100), bytes(200));
    let mut reader = Throttled::new(&input[..]).reads(Arc::clone(&budget));
    let mut buffer = [0; 200];
    assert_eq!(reader.read(&mut buffer).await.unwrap(), 100);
    assert!(timeout(ms(5), reader.read(&mut buffer)).await.is_err());
    let (_, held) = reader.into_parts();
    assert_eq!(held, &input[100..]);
    assert_eq!(budget.status().remaining, 5);

    let mut writer = Throttled::new(Peer::accepting(1_000)).writes(Arc::clone(&budget));
    assert!(timeout(ms(5), writer.write(&bytes(100))).await.is_err());
    drop(writer);
    assert_eq!(budget.status().remaining, 10);
}

#[tokio::test(start_paused = true)]
async fn shutdown_refunds_a_cancelled_write() {
    let budget = limiter(1_000, 100);
    let mut writer = Throttled::new(Peer::accepting(1_000)).writes(Arc::clone(&budget));
    writer.write_all(&bytes(100)).await.unwrap();
    assert!(timeout(ms(5), writer.write(&bytes(100))).await.is_err());
    assert_eq!(budget.status().reset, ms(120 - 5));
    writer.shutdown().await.unwrap();
    assert_eq!(budget.status().reset, ms(100 - 5));
}

#[tokio::test(start_paused = true)]
async fn vectored_writes_are_only_used_without_throttling() {
    let (near, _far) = tokio::io::duplex(64);
    assert!(near.is_write_vectored());
    let reads = Throttled::new(near).reads(limiter(1_000, 100));
    assert!(reads.is_write_vectored());
    let mut writes = reads.writes(limiter(1_000, 100));
    assert!(!writes.is_write_vectored());
    let several = [io::IoSlice::new(&[]), io::IoSlice::new(&[7; 5]), io::IoSlice::new(&[7; 6])];
    assert_eq!(writes.write_vectored(&several).await.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_read_with_a_smaller_buffer_is_charged_for_what_it_gets() {
    let (budget, input) = (limiter(1_000, 100), bytes(200));
    let mut reader = Throttled::new(&input[..]).reads(Arc::clone(&budget));
    assert_eq!(reader.read(&mut [0; 200]).await.unwrap(), 100);
    assert!(timeout(ms(5), reader.read(&mut [0; 200])).await.is_err());
    // The pending chunk of 20 bytes is granted at 20 ms; 17 of them are refunded.
    assert_eq!(reader.read(&mut [0; 3]).await.unwrap(), 3);
    assert_eq!(budget.status().remaining, 17);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, &input[103..]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_reader_holds_no_permit() {
    let budget = limiter(1_000, 100);
    let (near, mut far) = tokio::io::duplex(64);
    let mut reader = Throttled::new(near).reads(Arc::clone(&budget));
    assert!(reader.read(&mut [0; 50]).now_or_never().is_none());
    assert_eq!(budget.status().remaining, 100);
    far.write_all(b"hello").await.unwrap();
    assert_eq!(reader.read(&mut [0; 50]).await.unwrap(), 5);
    assert_eq!(budget.status().remaining, 95);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_limit_is_an_error_and_its_last_bytes_pass() {
    let total = || Limiter::with_algorithm(Total::new(10).unwrap());
    let input = bytes(16);
    let (mut reader, mut received) = (Throttled::new(&input[..]).reads(total()), Vec::new());
    assert_eq!(reader.read_to_end(&mut received).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    assert_eq!(received, &input[..10]);
    assert_eq!(reader.into_parts().1, &input[10..]);

    let mut writer = Throttled::new(Vec::new()).writes(total());
    writer.write_all(&input[..6]).await.unwrap();
    assert_eq!(writer.write_all(&input[6..]).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    assert_eq!(writer.get_ref(), &input[..10]);
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_nothing_waits() {
    let input = bytes(1_000);
    let (mut received, start) = (Vec::new(), Instant::now());
    Throttled::new(&input[..]).read_to_end(&mut received).await.unwrap();
    Throttled::new(Vec::new()).write_all(&input).await.unwrap();
    assert_eq!((received, start.elapsed()), (input, ms(0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn in_every_span_at_most_the_burst_and_the_rate_pass(
        lengths in prop::collection::vec(1..400_usize, 1..4),
        burst in 1..200_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let mut all = runtime.block_on(async {
            let budget = limiter(1_000, burst);
            let readers = lengths.iter().map(|length| {
                let (input, budget) = (bytes(*length), Arc::clone(&budget));
                async move { chunks(Throttled::new(&input[..]).reads(budget), &input).await }
            });
            futures_util::future::join_all(readers).await.concat()
        });
        prop_assert_eq!(all.iter().map(|(_, length)| length).sum::<usize>(), lengths.iter().sum::<usize>());
        all.sort_unstable();
        for (from, (start, _)) in all.iter().enumerate() {
            let mut sum = 0;
            for (end, length) in &all[from..] {
                sum += u128::try_from(*length).unwrap();
                // One byte per millisecond; tokio's timer has a resolution of a millisecond.
                prop_assert!(sum <= u128::from(burst) + (end - start) + 1, "{} from {} to {} ms", sum, start, end);
            }
        }
    }
}
