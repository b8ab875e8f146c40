//! Real clients of Redis.

use crate::resp_support::*;
use diana::ManualClock;
use diana::rules::Secret;
use diana_services::resp::RespState;
use diana_testing::Script;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a program of Redis against the server; its output, without the end of the last line.
async fn run(server: &Server, program: &str, args: &[&str], input: &str) -> String {
    let port = server.address.port().to_string();
    let mut command = Command::new("timeout");
    command.args(["60", program, "-h", "127.0.0.1", "-p", &port]).args(args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cli() {
    let state = RespState::default().password(Secret::new("hunter2"));
    let server = Server::with(RULES, ManualClock::new(), state).await;
    let auth = ["-a", "hunter2", "--no-auth-warning"];
    let cli = async |args: &[&str]| run(&server, "redis-cli", &[&auth[..], args].concat(), "").await;
    assert_eq!(cli(&["CL.THROTTLE", "k", "15", "30", "60"]).await, "0\n16\n15\n-1\n2");
    assert_eq!(cli(&["-3", "CL.THROTTLE", "k", "15", "30", "60"]).await, "0\n16\n14\n-1\n4");
    assert_eq!(cli(&["-n", "3", "CL.THROTTLE", "k", "15", "30", "60"]).await, "0\n16\n15\n-1\n2");
    assert_eq!(cli(&["DIANA.CHECK", "path", "/api/x", "account", "alice"]).await, "0\n3\n2\n-1\n1200\neach-account");
    // Without arguments it reads commands, as a person would type them.
    let piped = run(&server, "redis-cli", &auth, "MULTI\nCL.THROTTLE \"a b\" 0 1 60\nEXEC\nNOPE\nPING\n").await;
    assert_eq!(piped, "OK\nQUEUED\n0\n1\n0\n-1\n60\nERR unknown command 'NOPE', with args beginning with: \n\nPONG");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_benchmark() {
    let server = Server::start().await;
    let throttle = ["CL.THROTTLE", "k", "100000", "100000", "60"];
    let output =
        run(&server, "redis-benchmark", &[&["-n", "20000", "-P", "32", "-q"][..], &throttle].concat(), "").await;
    assert!(output.contains("requests per second"), "{output}");
    assert!(server.metrics.totals().allowed >= 20_000);
    let output = run(&server, "redis-benchmark", &["-n", "5000", "-t", "ping", "--csv"], "").await;
    assert!(output.contains("PING_INLINE") && output.contains("PING_MBULK"), "{output}");
    assert_eq!(server.metrics.totals().failed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default().password(Secret::new("hunter2"))).await;
    let script = "
import redis, sys
for protocol in (2, 3):
    client = redis.Redis(port=int(sys.argv[1]), password='hunter2', protocol=protocol, db=protocol, client_name='test')
    assert client.ping()
    print(client.execute_command('CL.THROTTLE', b'\\xff', 15, 30, 60))
    with client.pipeline() as pipeline:
        for _ in range(1000):
            pipeline.execute_command('CL.THROTTLE', 'many', 10000, 1, 60)
        replies = pipeline.execute()
    print(len(replies), replies[-1])
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(1000):
            pipeline.execute_command('CL.THROTTLE', 'many', 10000, 1, 60)
        print(pipeline.execute()[-1])
    print(client.execute_command('DIANA.CHECK', 'path', '/api/x', 'account', 'alice'))
    try:
        client.get('x')
    except redis.ResponseError as error:
        print(error)
";
    let port = server.address.port().to_string();
    let output = tokio::task::block_in_place(|| Script::python(script).unwrap().arg(&port).run()).unwrap();
    let once = |remaining| {
        format!(
            "[0, 16, 15, -1, 2]\n1000 [0, 10001, 9001, -1, 60000]\n[0, 10001, 8001, -1, 120000]\n\
             [0, 3, {remaining}, -1, {}, b'each-account']\n\
             unknown command 'GET', with args beginning with: 'x' ",
            (3 - remaining) * 1_200
        )
    };
    assert_eq!(output.trim(), format!("{}\n{}", once(2), once(1)).trim());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_clients() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default().password(Secret::new("hunter2"))).await;
    let script = "
import { createClient } from 'redis';
import Redis from 'ioredis';
const url = `redis://:hunter2@127.0.0.1:${process.argv[2]}`;
const node = await createClient({ url }).connect();
console.log(JSON.stringify(await node.sendCommand(['CL.THROTTLE', 'k', '15', '30', '60'])));
const all = await Promise.all(Array.from({ length: 1000 }, () => node.sendCommand(['CL.THROTTLE', 'n', '10000', '1', '60'])));
console.log(JSON.stringify(all.at(-1)));
await node.close();
const io = new Redis(url);
console.log(JSON.stringify(await io.call('cl.throttle', 'k', 15, 30, 60)));
const pipeline = io.pipeline();
for (let i = 0; i < 1000; i++) pipeline.call('cl.throttle', 'n', 10000, 1, 60);
console.log(JSON.stringify((await pipeline.exec()).at(-1)));
console.log(JSON.stringify((await io.multi().call('cl.throttle', 'm', 1, 1, 60).exec())));
await io.quit();
";
    let port = server.address.port().to_string();
    let output = tokio::task::block_in_place(|| Script::node(script).unwrap().arg(&port).run()).unwrap();
    let expected = "[0,16,15,-1,2]\n[0,10001,9001,-1,60000]\n[0,16,14,-1,4]\n[null,[0,10001,8001,-1,120000]]\n\
                    [[null,[0,2,1,-1,60]]]";
    assert_eq!(output.trim(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn php_redis() {
    let server = Server::with(RULES, ManualClock::new(), RespState::default().password(Secret::new("hunter2"))).await;
    let script = r#"<?php
$client = new Redis();
$client->connect("127.0.0.1", (int) $argv[1]);
$client->auth("hunter2");
$client->select(3);
echo json_encode($client->rawCommand("CL.THROTTLE", "k\0", 15, 30, 60)), "\n";
foreach ([Redis::PIPELINE, Redis::MULTI] as $mode) {
    $batch = $client->multi($mode);
    for ($i = 0; $i < 1000; $i++) $batch->rawCommand("CL.THROTTLE", "n", 10000, 1, 60);
    $replies = $batch->exec();
    echo count($replies), json_encode($replies[999]), "\n";
}
echo json_encode($client->rawCommand("DIANA.CHECK", "path", "/api/x", "account", "alice")), "\n";
$client->rawCommand("NOPE");
echo $client->getLastError(), "\n";
"#;
    let port = server.address.port().to_string();
    let output = tokio::task::block_in_place(|| Script::php(script).arg(&port).run()).unwrap();
    let expected = "[0,16,15,-1,2]\n1000[0,10001,9001,-1,60000]\n1000[0,10001,8001,-1,120000]\n\
                    [0,3,2,-1,1200,\"each-account\"]\nERR unknown command 'NOPE', with args beginning with: ";
    assert_eq!(output.trim(), expected.trim());
}
