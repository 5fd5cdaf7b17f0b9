//! What one task is told by others: a few bits and a waker, without a lock or a list of waiters.

use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Bits that anybody sets and one task takes.
#[derive(Debug, Default)]
pub(super) struct Signal {
    bits: AtomicU8,
    waker: AtomicWaker,
}

impl Signal {
    /// Sets these bits and wakes the task.
    pub(super) fn tell(&self, bits: u8) {
        // One that was told and has not looked yet is awake.
        if self.bits.fetch_or(bits, Ordering::AcqRel) & bits != bits {
            self.waker.wake();
        }
    }

    /// Takes the bits that are set; waits until there are some. For one task only.
    pub(super) fn poll_take(&self, context: &mut Context<'_>) -> Poll<u8> {
        // Before looking, so that what is told after the look wakes.
        self.waker.register(context.waker());
        match self.bits.swap(0, Ordering::AcqRel) {
            0 => Poll::Pending,
            bits => Poll::Ready(bits),
        }
    }

    /// As [`Signal::poll_take`].
    pub(super) async fn take(&self) -> u8 {
        std::future::poll_fn(|context| self.poll_take(context)).await
    }

    /// Whether these bits are set, without taking them; the task is woken when some are set later.
    pub(super) fn poll_is_set(&self, context: &mut Context<'_>, bits: u8) -> bool {
        if self.bits.load(Ordering::Acquire) & bits == bits {
            return true;
        }
        self.waker.register(context.waker());
        self.bits.load(Ordering::Acquire) & bits == bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_told_is_taken_once_whenever_it_was_told() {
        let signal = std::sync::Arc::new(Signal::default());
        signal.tell(1);
        signal.tell(4);
        assert_eq!(signal.take().await, 5);
        let waiting = tokio::spawn({
            let signal = std::sync::Arc::clone(&signal);
            async move { signal.take().await }
        });
        tokio::task::yield_now().await;
        signal.tell(2);
        assert_eq!(waiting.await.unwrap(), 2);
    }
}
