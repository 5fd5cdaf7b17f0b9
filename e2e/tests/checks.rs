//! The checks that are not simulated: who is served, what a crowd and a stranger are told, and text from outside.

use e2e::checks::{conversation, edges, identity};

/// Prints the whole of what does not hold.
fn holds(outcome: anyhow::Result<()>) {
    if let Err(why) = outcome {
        panic!("{why:#}");
    }
}

#[test]
fn only_the_own_fleet_is_heard() {
    holds(identity::only_the_own_fleet_is_heard());
}

#[test]
fn every_method_but_the_one_is_closed() {
    holds(identity::every_method_but_the_one_is_closed());
}

#[test]
fn a_request_does_not_choose_its_fleet() {
    holds(identity::a_request_does_not_choose_its_fleet());
}

#[test]
fn a_crowd_is_let_in_a_few_at_a_time() {
    holds(conversation::a_crowd_is_let_in_a_few_at_a_time().map_err(anyhow::Error::msg));
}

#[test]
fn another_protocol_is_refused_aloud() {
    holds(conversation::another_protocol_is_refused_aloud().map_err(anyhow::Error::msg));
}

#[test]
fn a_secret_is_stored_under_its_digest_only() {
    holds(edges::a_secret_is_stored_under_its_digest_only());
}

#[test]
fn connection_takes_none_of_our_headers() {
    holds(edges::connection_takes_none_of_our_headers());
}
