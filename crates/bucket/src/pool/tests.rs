use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Maximum wait of a test before it fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// A worker made from its step function.
struct StepTotals<F>(F);

impl<F: FnMut(u64) -> Next + Send> Worker for StepTotals<F> {
    fn step(&mut self, now_ns: u64) -> Next {
        (self.0)(now_ns)
    }
}

fn start(pool: &Pool, lane: Lane, step: impl FnMut(u64) -> Next + Send + 'static) -> Handle {
    pool.start(lane, Box::new(StepTotals(step))).unwrap()
}

/// Sends its name when it is dropped.
struct Told(Sender<&'static str>, &'static str);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send(self.1).unwrap();
    }
}

/// Starts a worker whose first step blocks at a gate, as with a device that hangs.
fn hang(pool: &Pool, lane: Lane, at_gate: Sender<()>, gate: Receiver<()>) -> Handle {
    start(pool, lane, move |_| {
        at_gate.send(()).unwrap();
        let opened = gate.recv();
        assert!(opened.is_err(), "it opens by being dropped");
        Next::Done
    })
}

#[test]
fn signal_during_a_step_makes_the_next_one_due() {
    let pool = Pool::new();
    let (stepped, steps) = channel();
    let (go, gate) = channel();
    let handle = start(&pool, Lane::Calm, move |_| {
        stepped.send(()).unwrap();
        match gate.recv() {
            Ok(()) => Next::OnSignal,
            Err(_) => Next::Done,
        }
    });
    for _ in 0..3 {
        steps.recv_timeout(PATIENCE).unwrap();
        handle.ring();
        handle.ring();
        go.send(()).unwrap();
    }
    steps.recv_timeout(PATIENCE).unwrap();
    drop(go);
    handle.join();
    assert!(steps.try_recv().is_err(), "two signals, one step");
}

#[test]
fn hanging_worker_blocks_no_other_and_threads_are_bounded() {
    let pool = Pool::new();
    let (at_gate, reached) = channel();
    let (mut gates, mut hung) = (Vec::new(), Vec::new());
    let max = Lane::Read.rules().threads_max;
    for _ in 0..max - 1 {
        let (open, gate) = channel();
        gates.push(open);
        hung.push(hang(&pool, Lane::Read, at_gate.clone(), gate));
    }
    for _ in 0..max - 1 {
        reached.recv_timeout(PATIENCE).unwrap();
    }
    let rounds = 1000;
    let done = Arc::new(AtomicUsize::new(0));
    let others: Vec<Handle> = (0..10)
        .map(|_| {
            let (done, mut left) = (Arc::clone(&done), rounds);
            start(&pool, Lane::Read, move |_| {
                left -= 1;
                done.fetch_add(1, Ordering::SeqCst);
                if left == 0 { Next::Done } else { Next::Again }
            })
        })
        .collect();
    for other in &others {
        other.join();
    }
    assert_eq!(done.load(Ordering::SeqCst), 10 * rounds);
    assert_eq!(hung[0].lane.state.lock().threads, max);
    drop(gates);
    for one in hung {
        one.join();
    }
}

#[test]
fn end_of_a_worker_is_signalled_after_it_is_dropped() {
    let pool = Pool::new();
    let (told, heard) = channel();
    let worker = Told(told.clone(), "worker");
    let handle = start(&pool, Lane::Prompt, move |_| {
        let _moved = &worker;
        Next::Done
    });
    handle.join();
    told.send("joined").unwrap();
    assert_eq!(heard.recv(), Ok("worker"));
    assert_eq!(heard.recv(), Ok("joined"));
    handle.ring();
    handle.join();
}

#[test]
fn panic_ends_only_its_worker() {
    let pool = Pool::new();
    let handle = start(&pool, Lane::Calm, |_| panic!("on purpose"));
    handle.join();
    let (stepped, steps) = channel();
    start(&pool, Lane::Calm, move |_| {
        stepped.send(()).unwrap();
        Next::Done
    })
    .join();
    assert_eq!(steps.recv(), Ok(()));
}

#[test]
fn timers_fire_in_order_and_a_signal_before_them() {
    let pool = Pool::new();
    let (told, heard) = channel();
    let timer = |name: &'static str, pause_ns: u64| {
        let told = told.clone();
        let mut due = None;
        start(&pool, Lane::Calm, move |now_ns| {
            let due_ns = *due.get_or_insert(now_ns + pause_ns);
            if now_ns >= due_ns {
                told.send(name).unwrap();
                return Next::Done;
            }
            Next::At(due_ns)
        })
    };
    let never = timer("never", u64::MAX / 2);
    timer("late", 40_000_000);
    timer("soon", 1_000_000);
    never.ring();
    assert_eq!(heard.recv_timeout(PATIENCE), Ok("soon"));
    assert_eq!(heard.recv_timeout(PATIENCE), Ok("late"));
    assert!(heard.try_recv().is_err());
    drop(pool);
    never.join();
}
