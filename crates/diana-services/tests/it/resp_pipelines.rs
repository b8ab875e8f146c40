//! Pipelines of any depth, and input that is split anywhere.

use crate::resp_support::*;
use diana::ManualClock;
use diana_services::resp::RespState;
use proptest::prelude::*;

async fn server() -> Server {
    Server::with(RULES, ManualClock::new(), RespState::default()).await
}

#[tokio::test]
async fn a_pipeline_of_ten_thousand_is_answered_in_order() {
    let server = server().await;
    let mut client = server.client().await;
    let depth = 10_000;
    let commands = (0..depth).map(|index| match index % 3 {
        0 => encode(&["CL.THROTTLE", "k", "1000000", "1", "1"]),
        1 => encode(&["ECHO", &index.to_string()]),
        _ => encode(&["NOPE"]),
    });
    client.send(&commands.collect::<Vec<_>>().concat()).await;
    for index in 0..depth {
        let reply = client.reply().await;
        match index % 3 {
            0 => assert_eq!(reply, format!("[0 1000001 {} -1 {}]", 1_000_000 - index / 3, index / 3 + 1)),
            1 => assert_eq!(reply, format!("\"{index}\"")),
            _ => assert_eq!(reply, "ERR unknown command 'NOPE', with args beginning with: "),
        }
    }
    assert_eq!(client.ask("PING").await, "PONG");
    let totals = server.metrics.totals();
    assert_eq!((totals.allowed, totals.denied, totals.failed), (3_334, 0, 3_333));
}

#[tokio::test]
async fn a_transaction_of_ten_thousand_is_executed() {
    let server = server().await;
    let mut client = server.client().await;
    let call = encode(&["CL.THROTTLE", "k", "1000000", "1", "1"]);
    client.send(&[encode(&["MULTI"]), call.repeat(10_000), encode(&["EXEC"])].concat()).await;
    assert_eq!(client.reply().await, "OK");
    assert!(client.replies(10_000).await.iter().all(|reply| reply == "QUEUED"));
    let executed = client.reply().await;
    assert_eq!(executed.matches("[0 1000001 ").count(), 10_000);
    assert!(executed.ends_with(" -1 10000]]"), "the last one has all of the debt");
}

#[tokio::test]
async fn a_transaction_is_bounded() {
    let server = server().await;
    let mut client = server.client().await;
    let long = "x".repeat(60_000);
    assert_eq!(client.ask("MULTI").await, "OK");
    let mut replies = Vec::new();
    for _ in 0..100 {
        replies.push(client.ask(&format!("ECHO {long}")).await);
    }
    assert!(replies.contains(&"ERR transaction is too large".to_owned()));
    assert_eq!(client.ask("EXEC").await, "EXECABORT Transaction discarded because of previous errors.");
}

/// What an empty argument takes in memory counts as well.
#[tokio::test]
async fn empty_arguments_of_a_transaction_are_bounded() {
    let server = server().await;
    let mut client = server.client().await;
    assert_eq!(client.ask("MULTI").await, "OK");
    let mut command = b"*1024\r\n$4\r\nPING\r\n".to_vec();
    command.extend_from_slice(&b"$0\r\n\r\n".repeat(1_023));
    client.send(&command.repeat(300)).await;
    let replies = client.replies(300).await;
    let queued = replies.iter().take_while(|reply| *reply == "QUEUED").count();
    assert!((200..260).contains(&queued), "{queued}");
    assert_eq!(replies[queued], "ERR transaction is too large");
    assert_eq!(client.ask("EXEC").await, "EXECABORT Transaction discarded because of previous errors.");
}

#[tokio::test]
async fn single_bytes_are_commands_too() {
    let server = server().await;
    let mut client = server.client().await;
    for byte in encode(&["CL.THROTTLE", "k", "15", "30", "60"]) {
        client.send(&[byte]).await;
    }
    assert_eq!(client.reply().await, "[0 16 15 -1 2]");
}

#[tokio::test]
async fn large_arguments_arrive() {
    let server = server().await;
    let mut client = server.client().await;
    for length in [4_095, 4_096, 16_385, 65_536] {
        let text = "y".repeat(length);
        assert_eq!(client.ask(&format!("ECHO {text}")).await.len(), length + 2);
    }
    // A long key is a key.
    let key = "k".repeat(65_536);
    assert_eq!(client.ask(&format!("CL.THROTTLE {key} 0 1 60")).await, "[0 1 0 -1 60]");
    assert_eq!(client.ask(&format!("CL.THROTTLE {key} 0 1 60")).await, "[1 1 0 60 60]");
}

#[tokio::test]
async fn a_client_that_ends_its_side_gets_its_replies() {
    let server = server().await;
    let mut client = server.client().await;
    client.send(b"PING\r\nDIANA.PEEK searches 203.0.113.7\r\n").await;
    client.end().await;
    assert_eq!(client.replies(2).await, ["PONG", "[[0 5 5 -1 0 \"searches\"]]"]);
    assert_eq!(client.try_reply().await, None);
}

#[tokio::test]
async fn a_flood_of_keys_is_bounded() {
    let file = file(RULES);
    let table = diana::TableOptions::default().memory(256 << 10);
    let engine = diana::EngineOptions::of(&file).clock(ManualClock::new()).table(table).build(&file);
    let server = Server::of(engine, RespState::default()).await;
    let mut client = server.client().await;
    for thousand in 0..50 {
        let calls = (0..1_000).map(|key| encode(&["CL.THROTTLE", &format!("{thousand}:{key}"), "0", "1", "3600"]));
        client.send(&calls.collect::<Vec<_>>().concat()).await;
        client.replies(1_000).await;
        assert!(server.engine.local().memory_used() <= 256 << 10);
    }
    // Keys without memory share counts, so no key gets more than its limit, and most of them get nothing.
    let totals = server.metrics.totals();
    assert!(totals.denied > 25_000, "{totals:?}");
    assert_eq!(client.ask("CL.THROTTLE 0:0 0 1 3600").await, "[1 1 0 3600 3600]");
}

/// A part of a pipeline.
#[derive(Clone, Debug)]
enum Part {
    /// A call with this key and these parameters, in the bytes of a client that writes lengths in two digits or not.
    Throttle {
        key: String,
        parameters: &'static [&'static str],
        has_long_length: bool,
    },
    Other(&'static str),
}

fn part() -> impl Strategy<Value = Part> {
    let parameters = prop::sample::select(vec![
        &["3", "1", "60"][..],
        &["3", "1", "60", "1"],
        &["3", "1", "60", "2"],
        &["30", "1", "6"],
        &["x", "1", "60"],
        &["3", "1"],
    ]);
    let throttle = ("[ab]{0,2}", parameters, any::<bool>())
        .prop_map(|(key, parameters, has_long_length)| Part::Throttle { key, parameters, has_long_length });
    let others = vec!["PING", "EXEC", "DISCARD", "SELECT 1", "SELECT 0", "RESET", "CL.THROTTLE a 3 1 60", "NOPE"];
    prop_oneof![8 => throttle, 2 => prop::sample::select(others).prop_map(Part::Other)]
}

impl Part {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Other(line) => format!("{line}\r\n").into_bytes(),
            Self::Throttle { key, parameters, has_long_length } => {
                let words = [&["CL.THROTTLE", key], *parameters].concat();
                let bytes = String::from_utf8(encode(&words)).unwrap();
                let (short, long) = (format!("${}\r\n{key}\r\n", key.len()), format!("$0{}\r\n{key}\r\n", key.len()));
                if *has_long_length { bytes.replacen(&short, &long, 1) } else { bytes }.into_bytes()
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A call that equals the last one but for its key is not parsed, so this compares with clients whose first command it is.
    #[test]
    fn a_repeated_call_is_answered_as_the_first_one(parts in prop::collection::vec(part(), 1..24), piece in 1_usize..80) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answers = |parts: Vec<Part>, is_repeated: bool| {
            runtime.block_on(async {
                let server = server().await;
                let mut client = server.client().await;
                let mut replies = Vec::new();
                for part in &parts {
                    if !is_repeated {
                        // Another call, of a key of its own, so that none equals the last one.
                        client.send(&encode(&["CL.THROTTLE", "(other)", "1000000", "1", "1"])).await;
                        client.reply().await;
                    }
                    for bytes in part.bytes().chunks(if is_repeated { piece } else { usize::MAX }) {
                        client.send(bytes).await;
                    }
                    replies.push(client.reply().await);
                }
                replies
            })
        };
        let pipelined = runtime.block_on(async {
            let server = server().await;
            let mut client = server.client().await;
            client.send(&parts.iter().flat_map(Part::bytes).collect::<Vec<_>>()).await;
            client.replies(parts.len()).await
        });
        let first = answers(parts.clone(), false);
        prop_assert_eq!(&answers(parts, true), &first);
        prop_assert_eq!(pipelined, first);
    }
}

#[tokio::test]
async fn a_repeated_call_is_queued_in_a_transaction() {
    let server = server().await;
    let mut client = server.client().await;
    let call = encode(&["CL.THROTTLE", "k", "3", "1", "60"]);
    client.send(&[call.clone(), encode(&["MULTI"]), call.clone(), encode(&["EXEC"]), call].concat()).await;
    assert_eq!(client.replies(4).await, ["[0 4 3 -1 60]", "OK", "QUEUED", "[[0 4 2 -1 120]]"]);
    assert_eq!(client.reply().await, "[0 4 1 -1 180]");
}
