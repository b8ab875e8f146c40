//! A pool of threads: at most Tomcat's `maxThreads` run at a time, and `acceptCount` jobs wait.

use diana_core::{Pool, PoolError};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier};

type Job = Box<dyn FnOnce() + Send>;

struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    fn start() -> io::Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        std::thread::Builder::new().spawn(move || received.iter().for_each(|job| job()))?;
        Ok(Self { jobs })
    }
}

/// Runs a job on a thread of the pool, which is idle again when the job is done.
fn execute(pool: &Pool<Worker>, job: impl FnOnce() + Send + 'static) -> Result<(), PoolError<io::Error>> {
    let worker = pool.blocking_get(Worker::start)?;
    let jobs = worker.jobs.clone();
    let sent = jobs.send(Box::new(move || {
        let _worker = worker;
        job();
    }));
    assert!(sent.is_ok(), "the thread runs as long as it is in the pool");
    Ok(())
}

#[test]
fn at_most_max_threads_run_and_a_thread_that_panicked_is_replaced() {
    const MAX_THREADS: usize = 4;
    let pool = Pool::new("requests", MAX_THREADS as u64).unwrap().with_resource_name("thread");
    let (running, most, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), mpsc::channel());
    for number in 0..200 {
        let (running, most, sender) = (Arc::clone(&running), Arc::clone(&most), done.0.clone());
        let job = move || {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            running.fetch_sub(1, Ordering::SeqCst);
            let _ = sender.send(number);
            if number % 20 == 0 {
                // Without a message.
                std::panic::resume_unwind(Box::new(()));
            }
        };
        execute(&pool, job).unwrap();
    }
    let mut all = done.1.iter().take(200).collect::<Vec<_>>();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..200));
    assert!(most.load(Ordering::SeqCst) <= MAX_THREADS && pool.idle() <= MAX_THREADS);
}

#[test]
fn over_accept_count_a_job_is_rejected() {
    let pool = Pool::new("requests", 1).unwrap().with_resource_name("thread").with_max_waiting(1);
    let barrier = Arc::new(Barrier::new(2));
    let blocked = Arc::clone(&barrier);
    let job = move || {
        blocked.wait();
    };
    execute(&pool, job).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| execute(&pool, || {}));
        while pool.waiting() == 0 {
            std::thread::yield_now();
        }
        let rejected = execute(&pool, || {}).unwrap_err();
        let expected = "pool `requests`: no thread free (1 in use, 1 waiting, at most 1 may wait)";
        assert_eq!(rejected.to_string(), expected);
        barrier.wait();
        assert!(waiting.join().unwrap().is_ok());
    });
}
