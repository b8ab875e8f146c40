//! The page `docs/tasks/queue-consumers.md` is correct: its consumer is run as it is written, in two processes, with a stream
//! of a real Redis as the queue, and its rule file, except for the address.
//!
//! # The bounds
//! Diana grants at most `burst + rate × t` in every span `t`. The records have the times at which messages were handled,
//! after a delay that a busy machine decides. A consumer asks for its next turn only after it has handled a message, so of
//! the messages handled in a span, at most the first one of each consumer was granted before: in any span of the records
//! there are at most `burst + rate × t + consumers`, whatever the delays are.

use super::resp_client::RespClient;
use crate::support::program::{Diana, LONG};
use diana_testing::{RedisServer, RunningScript, Script, wait_until};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../../../../../docs/tasks/queue-consumers.md");

/// The values of the page: messages per second, the burst, and the number of consumers.
const RATE: u64 = 40;
const BURST: u64 = 1;
const CONSUMERS: [&str; 2] = ["one", "two"];

/// Returns the only block of the page with this info string.
fn block(info: &str) -> &'static str {
    let start = format!("\n```{info}\n");
    let mut blocks = PAGE.split(&*start).skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let block = blocks.next().unwrap_or_else(|| panic!("no block {info}"));
    assert!(blocks.next().is_none(), "two blocks {info}");
    block
}

/// Replaces a text that must be there once.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from} in\n{text}");
    text.replace(from, to)
}

/// The rule file of the page.
fn rules() -> String {
    replaced(block("yaml"), "127.0.0.1:6380", "$LISTEN")
}

/// A message that was handled: the time in milliseconds of the Redis clock, its recipient, and its consumer.
#[derive(Debug, PartialEq, Eq)]
struct Handled {
    at: u64,
    to: String,
    by: String,
}

/// The broker, Diana, and the consumers.
struct Setup {
    // Fields are dropped in this order: consumers first.
    consumers: BTreeMap<&'static str, RunningScript>,
    diana: Diana,
    broker: RedisServer,
    published: u64,
    /// The user and the password in the URL of Diana.
    credentials: &'static str,
}

impl Setup {
    /// Starts the broker with the group of the page, and Diana with these rules.
    fn start(rules: &str) -> Self {
        let broker = RedisServer::start().unwrap();
        let setup =
            Self { consumers: BTreeMap::new(), diana: Diana::serve(rules), broker, published: 0, credentials: "" };
        let group = block("sh broker").lines().next().unwrap();
        let group = group.strip_prefix("redis-cli -p 6379 ").unwrap().split(' ').collect::<Vec<_>>();
        assert_eq!(setup.broker.cli(&group).unwrap(), "OK");
        setup
    }

    /// Starts the consumers, and waits until they are ready.
    fn consume(&mut self, text: &str) {
        for name in CONSUMERS {
            self.start_consumer(name, text);
        }
        self.wait_until_ready();
    }

    fn wait_until_ready(&self) {
        let are_ready = || {
            let known = self.broker.cli(&["XINFO", "CONSUMERS", "mails", "senders"]).unwrap();
            let are_known = CONSUMERS.iter().all(|name| known.lines().any(|line| line == *name));
            let blocked = self.broker.info("clients", "blocked_clients").unwrap();
            (are_known && blocked == CONSUMERS.len().to_string()).then_some(())
        };
        self.wait("the consumers", are_ready);
    }

    fn start_consumer(&mut self, name: &'static str, text: &str) {
        self.start_consumer_at(self.diana.port(), name, text);
    }

    /// Starts a consumer that asks the Diana at this port.
    fn start_consumer_at(&mut self, port: u16, name: &'static str, text: &str) {
        let diana = format!("redis://{}127.0.0.1:{port}", self.credentials);
        let script = Script::python(text).unwrap().arg(name).arg(&self.broker.url()).arg(&diana);
        self.consumers.insert(name, script.start().unwrap());
    }

    /// Waits for a condition. On a timeout, or if a consumer has exited, shows what the consumers have written.
    fn wait<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let result = wait_until(what, LONG, || {
            let has_ended = self.consumers.values().any(RunningScript::has_ended);
            if has_ended { Some(None) } else { condition().map(Some) }
        });
        result.ok().flatten().unwrap_or_else(|| {
            let outputs = self.consumers.iter().map(|(name, script)| (name, script.output()));
            panic!("waiting for {what}: {:?}", outputs.collect::<Vec<_>>())
        })
    }

    /// Publishes messages to different recipients at once. Returns the time before it.
    fn publish(&mut self, count: u64) -> u64 {
        let before = self.time();
        let script = "for number = ARGV[1], ARGV[2] do redis.call('XADD', 'mails', '*', 'to', 'user-' .. number) end";
        let (first, last) = (self.published + 1, self.published + count);
        self.broker.cli(&["EVAL", script, "0", &first.to_string(), &last.to_string()]).unwrap();
        self.published = last;
        before
    }

    /// Returns the time of the broker, in milliseconds.
    fn time(&self) -> u64 {
        let time = self.broker.cli(&["TIME"]).unwrap();
        let (seconds, micros) = time.split_once('\n').unwrap();
        seconds.parse::<u64>().unwrap() * 1_000 + micros.parse::<u64>().unwrap() / 1_000
    }

    fn count(&self) -> u64 {
        self.broker.cli(&["XLEN", "sent"]).unwrap().parse().unwrap()
    }

    fn wait_until_handled(&self, count: u64) {
        self.wait(&format!("{count} messages"), || (self.count() >= count).then_some(()));
    }

    /// Waits until all messages are acknowledged.
    fn wait_for_all(&self) -> Vec<Handled> {
        self.wait_until_handled(self.published);
        self.wait("the acknowledgements", || (self.pending() == 0).then_some(()));
        self.handled()
    }

    /// Returns the number of messages that consumers have in hand.
    fn pending(&self) -> u64 {
        self.broker.cli(&["XPENDING", "mails", "senders"]).unwrap().lines().next().unwrap().parse().unwrap()
    }

    /// Returns what the consumers have logged, in order.
    fn handled(&self) -> Vec<Handled> {
        let entries = self.broker.cli(&["XRANGE", "sent", "-", "+"]).unwrap();
        let lines = entries.lines().collect::<Vec<_>>();
        let handled = lines.chunks(5).map(|entry| match entry {
            [id, "to", to, "by", by] => {
                let at = id.split('-').next().unwrap().parse().unwrap();
                Handled { at, to: (*to).to_owned(), by: (*by).to_owned() }
            }
            other => panic!("{other:?}"),
        });
        handled.collect()
    }

    /// Returns how many messages the running Diana has let pass.
    fn granted(&self) -> f64 {
        self.diana.metric("diana_service_requests_total{service=\"resp\",outcome=\"allowed\"}")
    }

    /// Asserts that each message was handled exactly once.
    fn assert_once(&self, handled: &[Handled]) {
        let mut recipients = handled.iter().map(|one| one.to.clone()).collect::<Vec<_>>();
        let mut expected = (1..=self.published).map(|number| format!("user-{number}")).collect::<Vec<_>>();
        recipients.sort();
        expected.sort();
        assert_eq!(recipients, expected);
    }
}

/// Returns the first messages that exceed `RATE × t + more` in a span `t` of the records, of all spans that begin and end
/// with one.
fn find_over_rate(handled: &[Handled], more: u64) -> Option<&[Handled]> {
    let spans = (0..handled.len()).flat_map(|first| (first..handled.len()).map(move |last| first..=last));
    let mut spans = spans.filter_map(|span| handled.get(span));
    spans.find(|span| {
        let [first, .., last] = span else { return more == 0 };
        // The times are cut off to milliseconds, so a span may be one longer.
        let (count, millis) = (u64::try_from(span.len()).unwrap(), last.at - first.at + 1);
        count * 1_000 > RATE * millis + more * 1_000
    })
}

/// Returns the first message that was handled before its turn: the one after `n` others has its turn `n - burst + 1`
/// intervals after the first question at the earliest.
fn find_before_turn(handled: &[Handled], start: u64) -> Option<&Handled> {
    let mut turns = (0_u64..).map(|others| start + (others + 1).saturating_sub(BURST) * 1_000 / RATE).zip(handled);
    turns.find(|(earliest, message)| message.at < *earliest).map(|(_, message)| message)
}

#[test]
fn two_consumers_handle_each_message_once_at_an_even_rate() {
    let mut setup = Setup::start(&rules());
    setup.consume(block("python"));
    assert_eq!(setup.granted(), 0.0, "consumers of an empty queue take no turns");
    let start = setup.publish(60);
    let handled = setup.wait_for_all();
    setup.assert_once(&handled);
    assert_eq!(handled.iter().map(|one| &*one.by).collect::<BTreeSet<_>>(), CONSUMERS.into());
    assert_eq!(find_over_rate(&handled, BURST + 2), None);
    assert_eq!(find_before_turn(&handled, start), None);
    assert_eq!(setup.granted(), 60.0, "one turn for each message");
}

#[test]
fn consumers_of_several_dianas_share_a_rate_on_redis() {
    let store = RedisServer::start().unwrap();
    // A busy machine may need longer than the default.
    let rules = format!("store: {{redis: '{}', timeout: 20s}}\n{}", store.url(), rules());
    let mut setup = Setup::start(&rules);
    let other = Diana::serve(&rules);
    setup.start_consumer("one", block("python"));
    setup.start_consumer_at(other.port(), "two", block("python"));
    setup.wait_until_ready();
    let start = setup.publish(60);
    let handled = setup.wait_for_all();
    setup.assert_once(&handled);
    assert_eq!(handled.iter().map(|one| &*one.by).collect::<BTreeSet<_>>(), CONSUMERS.into());
    assert_eq!(find_over_rate(&handled, BURST + 2), None);
    assert_eq!(find_before_turn(&handled, start), None);
}

/// Consumers that don't share a limit exceed the bounds above, so those would notice.
#[test]
fn the_bounds_detect_a_limit_for_each_consumer() {
    // Two consumers at 40/s each: at 0, 0, 25, 25, ... ms.
    let handled = (0..60).map(|number| Handled { at: number / 2 * 25, to: String::new(), by: String::new() });
    let handled = handled.collect::<Vec<_>>();
    assert_eq!(find_over_rate(&handled, BURST + 2).map(|span| span[0].at), Some(0));
    assert_eq!(find_before_turn(&handled, 0).map(|message| message.at), Some(0));
}

#[test]
fn the_commands_of_the_page_publish_a_message_that_is_handled() {
    let mut setup = Setup::start(&rules());
    let publish = block("sh broker").lines().nth(1).unwrap().strip_prefix("redis-cli -p 6379 ").unwrap();
    setup.broker.cli(&publish.split(' ').collect::<Vec<_>>()).unwrap();
    setup.start_consumer("one", block("python"));
    setup.wait_until_handled(1);
    let handled = setup.handled();
    assert_eq!((&*handled[0].to, &*handled[0].by), ("alice@example.com", "one"));
    // The other command of the page asks Diana.
    assert!(block("sh").ends_with("\nredis-cli -p 6380 DIANA.CHECK domain mails\n"));
    let reply = RespClient::connect(setup.diana.port()).ask("DIANA.CHECK domain mails");
    assert!(reply.starts_with("[0 1 0 -1 1 ") && reply.ends_with(" mails]"), "{reply}");
}

#[test]
fn while_diana_is_unreachable_each_consumer_keeps_its_share_of_the_rate() {
    let mut setup = Setup::start(&rules());
    setup.consume(block("python"));
    setup.publish(60);
    setup.wait_until_handled(15);
    setup.diana.kill();
    // These are certainly handled without it.
    setup.publish(20);
    setup.wait_for_all();
    setup.diana.restart();
    assert_eq!(setup.granted(), 0.0);
    setup.publish(40);
    let handled = setup.wait_for_all();
    setup.assert_once(&handled);
    // Two starts with a burst; for each consumer, a message granted before the span and one after a pause in part.
    assert_eq!(find_over_rate(&handled, 2 * (BURST + 2)), None);
    assert_eq!(setup.granted(), 40.0, "the consumers ask again");
}

/// The same, but Diana is started again while messages are being handled.
#[test]
fn a_short_outage_loses_no_message() {
    let mut setup = Setup::start(&rules());
    setup.consume(block("python"));
    setup.publish(60);
    setup.wait_until_handled(15);
    setup.diana.kill();
    let handled = setup.count();
    setup.publish(40);
    setup.wait_until_handled(handled + 10);
    setup.diana.restart();
    setup.publish(40);
    let handled = setup.wait_for_all();
    setup.assert_once(&handled);
    assert_eq!(find_over_rate(&handled, 2 * (BURST + 2)), None);
    assert!(setup.granted() >= 40.0, "the consumers ask again");
}

#[test]
fn consumers_that_fail_closed_stop_until_diana_is_reachable_again() {
    let mut setup = Setup::start(&rules());
    setup.consume(&replaced(block("python"), "FAIL_OPEN = True", "FAIL_OPEN = False"));
    setup.publish(10);
    setup.wait_for_all();
    setup.diana.kill();
    setup.publish(20);
    setup.wait("a message in each hand", || (setup.pending() == 2).then_some(()));
    let before = setup.time();
    setup.diana.restart();
    let handled = setup.wait_for_all();
    setup.assert_once(&handled);
    assert!(handled[10..].iter().all(|one| one.at >= before), "{before}: {handled:?}");
    assert_eq!(setup.granted(), 20.0);
    // No message passed without a turn.
    assert_eq!(find_over_rate(&handled, 2 * BURST + 2), None);
}

#[test]
fn a_killed_consumer_continues_with_the_message_that_it_had() {
    let mut setup = Setup::start(&rules());
    setup.consume(block("python"));
    setup.publish(80);
    setup.wait_until_handled(15);
    setup.consumers.get_mut("one").unwrap().kill().unwrap();
    let before = setup.broker.cli(&["XPENDING", "mails", "senders", "-", "+", "1", "one"]).unwrap();
    setup.start_consumer("one", block("python"));
    setup.wait("the messages", || (setup.pending() == 0 && setup.count() >= 80).then_some(()));
    let handled = setup.handled();
    let recipients = handled.iter().map(|one| &*one.to).collect::<BTreeSet<_>>();
    assert_eq!(recipients.len(), 80, "{handled:?}");
    // Only what it had in hand may be handled twice.
    assert!(handled.len() <= 80 + usize::from(!before.is_empty()), "{before}: {handled:?}");
}

#[test]
fn a_consumer_whose_turn_is_too_late_keeps_its_message_and_asks_again() {
    // The second of two turns would be 300 ms later.
    let rules = replaced(&rules(), "limit: 40/s", "limit: 10/3s");
    let mut setup = Setup::start(&replaced(&rules, "wait: 5s", "wait: 1ms"));
    setup.consume(block("python"));
    setup.publish(4);
    let handled = setup.wait_for_all();
    setup.assert_once(&handled);
    assert!(setup.diana.metric("diana_service_requests_total{service=\"resp\",outcome=\"denied\"}") >= 1.0);
    assert_eq!(setup.granted(), 4.0);
}

#[test]
fn a_consumer_without_a_rule_exits_with_its_message_unhandled() {
    let mut setup = Setup::start(&replaced(&rules(), "{domain: mails}", "{domain: mail}"));
    setup.start_consumer("one", block("python"));
    setup.publish(1);
    let consumer = &setup.consumers["one"];
    wait_until("its exit", LONG, || consumer.has_ended().then_some(())).unwrap();
    assert_eq!(consumer.output().unwrap(), "no rule matches: messages would not be limited\n");
    assert_eq!((setup.count(), setup.pending()), (0, 1));
}

#[test]
fn a_connection_that_diana_has_closed_is_opened_again() {
    let mut setup = Setup::start(&rules());
    setup.consume(block("python"));
    setup.publish(10);
    setup.wait_for_all();
    // No consumer asks meanwhile.
    setup.diana.kill();
    setup.diana.restart();
    setup.publish(10);
    let handled = setup.wait_for_all();
    setup.assert_once(&handled);
    assert_eq!(setup.granted(), 10.0);
}

#[test]
fn the_url_of_a_consumer_has_the_password() {
    let rules = replaced(&rules(), "resp: $LISTEN", "resp: {listen: $LISTEN, password: hunter2}");
    let mut setup = Setup { credentials: ":hunter2@", ..Setup::start(&rules) };
    setup.consume(block("python"));
    setup.publish(10);
    let handled = setup.wait_for_all();
    setup.assert_once(&handled);
    assert_eq!(setup.granted(), 10.0);
}

#[test]
fn a_diana_that_does_not_answer_is_unreachable() {
    let mut setup = Setup::start(&rules());
    setup.consume(&replaced(block("python"), "socket_timeout=10,", "socket_timeout=1,"));
    setup.diana.signal(Signal::STOP);
    setup.publish(4);
    let handled = setup.wait_for_all();
    setup.diana.signal(Signal::CONT);
    setup.assert_once(&handled);
}

/// The rules of the page with other values of its fields.
fn ask(changes: &[(&str, &str)]) -> (Diana, RespClient) {
    let rules = changes.iter().fold(rules(), |rules, (from, to)| replaced(&rules, from, to));
    let diana = Diana::serve(&rules);
    let client = RespClient::connect(diana.port());
    (diana, client)
}

#[test]
fn a_turn_that_would_be_later_than_the_wait_is_denied_at_once() {
    let (_diana, mut client) = ask(&[("limit: 40/s", "limit: 1/h")]);
    assert!(client.allows("domain mails"));
    let denied = client.ask("DIANA.CHECK domain mails");
    let retry_after = denied.strip_prefix("[1 1 0 ").unwrap().split(' ').next().unwrap().parse::<u32>().unwrap();
    assert!((3_500..=3_595).contains(&retry_after), "it could wait the last five seconds of the hour: {denied}");
    // A rule without `wait` never waits.
    let (_diana, mut client) = ask(&[("limit: 40/s", "limit: 1/h"), ("    wait: 5s", "    # wait: 5s")]);
    assert_eq!([(); 2].map(|()| client.allows("domain mails")), [true, false]);
}

#[test]
fn a_cost_over_the_burst_is_never_granted() {
    let (_diana, mut client) = ask(&[]);
    let reply = client.ask("DIANA.CHECK domain mails COST 3");
    assert!(reply.starts_with("[1 1 ") && reply.split(' ').nth(3) == Some("-1"), "{reply}");
    let (_diana, mut client) = ask(&[("burst: 1 ", "burst: 3 "), ("limit: 40/s", "limit: 1/h")]);
    assert!(client.allows("domain mails COST 3") && !client.allows("domain mails"));
}

#[test]
fn without_a_burst_a_second_of_messages_passes_at_once() {
    let (_diana, mut client) = ask(&[("    burst: 1 ", "    # burst "), ("limit: 40/s", "limit: 40/h")]);
    for _ in 0..40 {
        assert!(client.allows("domain mails"));
    }
    assert!(!client.allows("domain mails"));
}

#[test]
fn a_budget_for_each_tenant_and_one_for_all_apply_together() {
    let each = "    by: account\n    limit: 1/h\n";
    let total = "\n  - {name: all, match: {domain: mails}, limit: 3/h}\n";
    let (_diana, mut client) =
        ask(&[("    limit: 40/s\n", each), ("wait: 5s", "wait: 1s"), ("longer than consumers / rate\n", total)]);
    for tenant in ["a", "b"] {
        let question = format!("domain mails account {tenant}");
        assert_eq!([(); 2].map(|()| client.allows(&question)), [true, false]);
    }
    assert_eq!(["c", "d"].map(|tenant| client.allows(&format!("domain mails account {tenant}"))), [true, false]);
}

#[test]
fn a_wait_blocks_only_its_own_connection() {
    let (mut diana, mut client) = ask(&[("limit: 40/s", "limit: 1/h"), ("wait: 5s", "wait: 2h")]);
    assert!(client.allows("domain mails"));
    // In one write, so that the server has both.
    client.try_send("DIANA.CHECK domain mails\r\nPING\r\n").unwrap();
    let is_waiting = || (diana.metric("diana_rule_waiting{rule=\"mails\"}") == 1.0).then_some(());
    wait_until("the waiting call", LONG, is_waiting).unwrap();
    assert_eq!(RespClient::connect(diana.port()).ask("PING"), "PONG");
    diana.kill();
    assert_eq!(client.reply(), None, "PING is answered after the wait");
}

#[test]
fn a_client_that_leaves_gives_back_its_turn() {
    let (diana, mut client) = ask(&[("limit: 40/s", "limit: 1/h"), ("wait: 5s", "wait: 90min")]);
    let wait_for = |count: f64| {
        let is_waiting = || (diana.metric("diana_rule_waiting{rule=\"mails\"}") == count).then_some(());
        wait_until("the waiting calls", LONG, is_waiting).unwrap();
    };
    assert!(client.allows("domain mails"));
    let mut waiting = RespClient::connect(diana.port());
    waiting.send("DIANA.CHECK domain mails");
    wait_for(1.0);
    assert!(!client.allows("domain mails"), "in two hours");
    drop(waiting);
    wait_for(0.0);
    client.send("DIANA.CHECK domain mails");
    wait_for(1.0);
}
