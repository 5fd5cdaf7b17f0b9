//! Which ends of `scalwsd check` prove that a resource is deadly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;

use agent::check::Checker;

/// What the agent finds when a child says two resources and then does this.
async fn found(ends: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("scalwsd");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--skip*) echo '{{\"done\":{{\"loaded\":1}}}}'; exit 1;; esac\n\
         echo '{{\"put\":{{\"kind\":\"pool\",\"name\":\"a\"}}}}'\n\
         echo '{{\"put\":{{\"kind\":\"fragment\",\"name\":\"b\"}}}}'\n{ends}\n"
    );
    let new = dir.path().join("new");
    std::fs::write(&new, script).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&new, &program).unwrap();
    let checker = Checker { scalwsd: program, volume: dir.path().to_owned() };
    checker.find_deadly("j", 1).await.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn whatever_a_child_does_to_itself_proves_the_resource_that_it_was_at() {
    for ends in ["kill -ABRT $$", "kill -SEGV $$", "exit 101", "exit 0"] {
        assert_eq!(found(ends).await, ["fragment/b"], "{ends}");
    }
}

#[tokio::test]
async fn what_is_done_to_a_child_from_outside_proves_nothing() {
    // Not HUP, INT or QUIT: a shell ignores them for what it starts in the background, and children inherit that.
    for ends in ["kill -KILL $$", "kill -TERM $$"] {
        assert_eq!(found(ends).await, Vec::<String>::new(), "{ends}");
    }
}

#[tokio::test]
async fn a_death_that_does_not_come_again_proves_nothing() {
    let once = "if mkdir \"${0%/*}/once\" 2>/dev/null; then exit 101; fi\necho '{\"done\":{\"loaded\":2}}'";
    assert_eq!(found(once).await, Vec::<String>::new());
}
