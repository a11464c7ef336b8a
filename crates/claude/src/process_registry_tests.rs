use super::*;

fn registry() -> (tempfile::TempDir, ProcessRegistry) {
    let place = tempfile::tempdir().unwrap();
    let registry = ProcessRegistry::new(place.path().join("running"));
    (place, registry)
}

#[test]
fn conversation_can_be_leased_again_after_release() {
    let (_place, registry) = registry();
    let conversation = Uuid::new_v4();
    let lease = registry.lease(conversation).unwrap();
    lease.note(std::process::id(), Uuid::new_v4());
    let error = registry.lease(conversation).unwrap_err();
    assert!(matches!(error, LeaseError::InUse { .. }), "{error:?}");
    assert!(registry.lease(Uuid::new_v4()).is_ok());
    let listed = registry.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].conversation, conversation);
    drop(lease);
    assert_eq!(registry.list().unwrap(), []);
    registry.lease(conversation).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn lease_error_names_the_owner() {
    let (_place, registry) = registry();
    let conversation = Uuid::new_v4();
    let lease = registry.lease(conversation).unwrap();
    lease.note(std::process::id(), Uuid::new_v4());
    let error = registry.lease(conversation).unwrap_err().to_string();
    let by = format!("is in use by the runtime with warden process {}; stop it first", std::process::id());
    assert!(error.ends_with(&by), "{error}");
}

#[test]
fn sweep_keeps_live_runtimes_and_foreign_files() {
    let (_place, registry) = registry();
    let live = registry.lease(Uuid::new_v4()).unwrap();
    live.note(std::process::id(), Uuid::new_v4());
    let stale = registry.directory.join(format!("{}.json", Uuid::new_v4()));
    // Recorded before a reboot, when the process id belonged to another process.
    let mut record = Record::new(Uuid::new_v4(), std::process::id(), Uuid::new_v4());
    record.boot = Some("another".to_owned());
    std::fs::write(&stale, record.to_json()).unwrap();
    let (foreign, half) = (registry.directory.join("notes.json"), registry.directory.join("x"));
    std::fs::write(&foreign, "{}").unwrap();
    std::fs::write(&half, "{").unwrap();
    let sweep = registry.sweep().unwrap();
    assert_eq!((sweep.live.len(), sweep.ended.len(), sweep.processes), (1, 1, 0));
    assert_eq!(sweep.ended[0].warden, None);
    assert!(!stale.exists() && foreign.exists() && half.exists());
    assert_eq!(registry.sweep().unwrap().ended, []);
}

#[test]
fn missing_directory_is_an_empty_registry() {
    let registry = ProcessRegistry::new("/nonexistent/registry");
    assert_eq!(registry.sweep().unwrap(), Sweep::default());
    assert_eq!(registry.list().unwrap(), []);
}

#[test]
fn record_round_trips_and_truncated_record_is_none() {
    let record = Record::new(Uuid::new_v4(), std::process::id(), Uuid::new_v4());
    let text = record.to_json();
    assert_eq!(Record::from_json(&text), Some(record));
    for length in 0..text.len() - 2 {
        assert_eq!(Record::from_json(text.get(..length).unwrap()), None);
    }
}
