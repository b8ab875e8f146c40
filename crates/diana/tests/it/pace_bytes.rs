//! Readers and writers transfer every byte, evenly, and are only charged for transferred bytes. Time is tokio's,
//! paused: the values are exact.

use crate::pacing::{bytes, limiter, ms};
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
async fn pieces(mut reader: impl AsyncRead + Unpin, expected: &[u8]) -> Vec<(u128, usize)> {
    let (start, mut all, mut pieces) = (Instant::now(), Vec::new(), Vec::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = reader.read(&mut buffer).await.unwrap();
        if length == 0 {
            assert_eq!(all, expected);
            // The end is not waited for.
            assert_eq!(pieces.last().map_or(0, |(at, _)| *at), start.elapsed().as_millis());
            return pieces;
        }
        all.extend_from_slice(&buffer[..length]);
        pieces.push((start.elapsed().as_millis(), length));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_brings_the_burst_at_once_and_the_rest_in_pieces_of_20_ms() {
    let film = bytes(190);
    let reader = Throttled::new(&film[..]).reads(limiter(1_000, 100));
    let even = [(0, 100), (20, 20), (40, 20), (60, 20), (80, 20), (90, 10)];
    assert_eq!(pieces(reader, &film).await, even);
}

#[tokio::test(start_paused = true)]
async fn a_slow_rate_passes_byte_by_byte() {
    let film = bytes(4);
    let reader = Throttled::new(&film[..]).reads(limiter(10, 1));
    assert_eq!(pieces(reader, &film).await, [(0, 1), (100, 1), (200, 1), (300, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_window_is_waited_for_as_a_whole() {
    let window = Limiter::with_algorithm(FixedWindow::new(Quota::per_second(100).unwrap()));
    let film = bytes(250);
    let found = pieces(Throttled::new(&film[..]).reads(window.with_clock(TokioClock::new())), &film).await;
    assert_eq!(found.iter().map(|(_, length)| *length).collect::<Vec<_>>(), [100, 100, 50]);
}

#[tokio::test(start_paused = true)]
async fn many_who_share_a_budget_take_turns_in_pieces_that_stay_as_large() {
    let (budget, film) = (limiter(1_000, 20), bytes(100));
    let readers = (0..5).map(|_| pieces(Throttled::new(&film[..]).reads(Arc::clone(&budget)), &film));
    let start = Instant::now();
    let all = futures_util::future::join_all(readers).await;
    // 500 bytes, of which 20 go at once.
    assert_eq!(start.elapsed(), ms(480));
    assert!(all.iter().flatten().all(|(_, length)| *length == 20), "{all:?}");
}

/// Records when each chunk was written, in milliseconds from `start`; accepts at most so many bytes at a time.
struct Peer {
    start: Instant,
    takes: usize,
    got: Vec<(u128, usize)>,
    stuck: bool,
    fails: bool,
}

impl Peer {
    fn that_takes(takes: usize) -> Self {
        Self { start: Instant::now(), takes, got: Vec::new(), stuck: false, fails: false }
    }
}

impl AsyncWrite for Peer {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if self.fails {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        if self.stuck {
            return Poll::Pending;
        }
        let length = from.len().min(self.takes);
        let at = self.start.elapsed().as_millis();
        self.got.push((at, length));
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
async fn a_writer_takes_the_burst_at_once_and_the_rest_in_pieces_of_20_ms() {
    let mut writer = Throttled::new(Peer::that_takes(1_000)).writes(limiter(1_000, 100));
    writer.write_all(&bytes(190)).await.unwrap();
    let even = [(0, 100), (20, 20), (40, 20), (60, 20), (80, 20), (90, 10)];
    assert_eq!(writer.get_ref().got, even);
}

#[tokio::test(start_paused = true)]
async fn a_short_write_pays_for_what_moved() {
    let budget = limiter(1_000, 100);
    let mut writer = Throttled::new(Peer::that_takes(7)).writes(Arc::clone(&budget));
    assert_eq!(writer.write(&bytes(50)).await.unwrap(), 7);
    assert_eq!(budget.status().remaining, 93);
    writer.write_all(&bytes(113)).await.unwrap();
    // 120 bytes, of which 100 go at once: however they were cut, the last goes at 20 ms.
    assert_eq!(writer.get_ref().start.elapsed(), ms(20));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_or_is_stuck_costs_nothing() {
    let budget = limiter(1_000, 100);
    let fails = Peer { fails: true, ..Peer::that_takes(1) };
    let error = Throttled::new(fails).writes(Arc::clone(&budget)).write(&bytes(50)).await.unwrap_err();
    assert_eq!((error.kind(), budget.status().remaining), (ErrorKind::ConnectionReset, 100));

    let stuck = Peer { stuck: true, ..Peer::that_takes(1) };
    let mut writer = Throttled::new(stuck).writes(Arc::clone(&budget));
    assert!(writer.write(&bytes(50)).now_or_never().is_none());
    assert_eq!(budget.status().remaining, 100);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_stuck_takes_one_piece_from_those_who_are_not() {
    let budget = limiter(1_000, 20);
    let stuck = Peer { stuck: true, ..Peer::that_takes(1) };
    let (mut stuck, mut busy) = (Throttled::new(stuck), Throttled::new(Peer::that_takes(1_000)));
    (stuck, busy) = (stuck.writes(Arc::clone(&budget)), busy.writes(budget));
    let start = Instant::now();
    // In one task, so the one that is stuck is polled whenever the other is.
    tokio::select! {
        biased;
        _ = stuck.write(&[7; 100]) => panic!("it is stuck"),
        done = busy.write_all(&[7; 1_000]) => done.unwrap(),
    }
    // 1,000 bytes, of which 20 go at once, and 20 that the other holds.
    assert_eq!(start.elapsed(), ms(1_000));
}

#[tokio::test(start_paused = true)]
async fn who_is_dropped_while_it_waits_gives_its_piece_back() {
    let (budget, film) = (limiter(1_000, 100), bytes(200));
    let mut reader = Throttled::new(&film[..]).reads(Arc::clone(&budget));
    let mut buffer = [0; 200];
    assert_eq!(reader.read(&mut buffer).await.unwrap(), 100);
    assert!(timeout(ms(5), reader.read(&mut buffer)).await.is_err());
    let (_, held) = reader.into_parts();
    assert_eq!(held, &film[100..]);
    assert_eq!(budget.status().remaining, 5);

    let mut writer = Throttled::new(Peer::that_takes(1_000)).writes(Arc::clone(&budget));
    assert!(timeout(ms(5), writer.write(&bytes(100))).await.is_err());
    drop(writer);
    assert_eq!(budget.status().remaining, 10);
}

#[tokio::test(start_paused = true)]
async fn who_shuts_down_gives_back_the_write_that_it_gave_up() {
    let budget = limiter(1_000, 100);
    let mut writer = Throttled::new(Peer::that_takes(1_000)).writes(Arc::clone(&budget));
    writer.write_all(&bytes(100)).await.unwrap();
    assert!(timeout(ms(5), writer.write(&bytes(100))).await.is_err());
    assert_eq!(budget.status().reset, ms(120 - 5));
    writer.shutdown().await.unwrap();
    assert_eq!(budget.status().reset, ms(100 - 5));
}

#[tokio::test(start_paused = true)]
async fn several_buffers_go_at_once_where_nothing_is_throttled() {
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
async fn a_later_read_with_less_room_pays_for_what_it_gets() {
    let (budget, film) = (limiter(1_000, 100), bytes(200));
    let mut reader = Throttled::new(&film[..]).reads(Arc::clone(&budget));
    assert_eq!(reader.read(&mut [0; 200]).await.unwrap(), 100);
    assert!(timeout(ms(5), reader.read(&mut [0; 200])).await.is_err());
    // The piece of 20 bytes that was begun comes at 20 ms; 17 of them go back.
    assert_eq!(reader.read(&mut [0; 3]).await.unwrap(), 3);
    assert_eq!(budget.status().remaining, 17);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, &film[103..]);
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
async fn a_limit_that_is_used_up_is_an_error_and_its_last_bytes_pass() {
    let total = || Limiter::with_algorithm(Total::new(10).unwrap());
    let film = bytes(16);
    let (mut reader, mut got) = (Throttled::new(&film[..]).reads(total()), Vec::new());
    assert_eq!(reader.read_to_end(&mut got).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    assert_eq!(got, &film[..10]);
    assert_eq!(reader.into_parts().1, &film[10..]);

    let mut writer = Throttled::new(Vec::new()).writes(total());
    writer.write_all(&film[..6]).await.unwrap();
    assert_eq!(writer.write_all(&film[6..]).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    assert_eq!(writer.get_ref(), &film[..10]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_limits_flows_freely() {
    let film = bytes(1_000);
    let (mut got, start) = (Vec::new(), Instant::now());
    Throttled::new(&film[..]).read_to_end(&mut got).await.unwrap();
    Throttled::new(Vec::new()).write_all(&film).await.unwrap();
    assert_eq!((got, start.elapsed()), (film, ms(0)));
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
                let (film, budget) = (bytes(*length), Arc::clone(&budget));
                async move { pieces(Throttled::new(&film[..]).reads(budget), &film).await }
            });
            futures_util::future::join_all(readers).await.concat()
        });
        prop_assert_eq!(all.iter().map(|(_, length)| length).sum::<usize>(), lengths.iter().sum::<usize>());
        all.sort_unstable();
        for (from, (start, _)) in all.iter().enumerate() {
            let mut sum = 0;
            for (end, length) in &all[from..] {
                sum += u128::try_from(*length).unwrap();
                // One byte each millisecond; tokio's timer counts in whole ones.
                prop_assert!(sum <= u128::from(burst) + (end - start) + 1, "{} from {} to {} ms", sum, start, end);
            }
        }
    }
}
