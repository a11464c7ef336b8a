use std::fs;
use std::sync::Mutex;

use super::*;

/// Remembers one decision.
#[derive(Default)]
struct OneDecision(Mutex<Option<(PathBuf, String, TrustDecision)>>);

impl FolderTrust for OneDecision {
    fn decision(&self, folder: &Path, digest: &str) -> Option<TrustDecision> {
        let decided = self.0.lock().unwrap();
        let (known, with, decision) = decided.as_ref()?;
        (known == folder && with == digest).then_some(*decision)
    }

    fn decide(&self, folder: &Path, digest: &str, decision: TrustDecision) -> Result<(), String> {
        *self.0.lock().unwrap() = Some((folder.to_owned(), digest.to_owned(), decision));
        Ok(())
    }
}

struct Case {
    dir: tempfile::TempDir,
    trust: Arc<dyn FolderTrust>,
    trusted: TrustedFolders,
}

impl Case {
    fn new() -> Self {
        let trust = Arc::new(OneDecision::default());
        Self { dir: tempfile::tempdir().unwrap(), trust, trusted: TrustedFolders::None }
    }

    fn write(&self, command: &str) {
        let folder = self.dir.path().join(".claude");
        fs::create_dir_all(&folder).unwrap();
        let settings = serde_json::json!({ "apiKeyHelper": command });
        fs::write(folder.join("settings.json"), settings.to_string()).unwrap();
    }

    fn judge(&self, answer: Option<OpeningAnswer>) -> Result<Option<TrustedProject>, OpenError> {
        let folder = ProjectFolder {
            cwd: self.dir.path().to_owned(),
            others: Vec::new(),
            environment: BTreeMap::new(),
            trusted: self.trusted.clone(),
            answer,
        };
        judge(folder, Arc::clone(&self.trust))
    }

    fn ask(&self) -> OpeningQuestion {
        match self.judge(None) {
            Err(OpenError::Question(question)) => *question,
            Ok(_) => panic!("not asked"),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn answer(question: &OpeningQuestion, option: &str) -> Option<OpeningAnswer> {
        Some(OpeningAnswer { topic: question.topic.clone(), option: option.to_owned() })
    }
}

#[test]
fn folder_without_executable_settings_is_not_asked_about() {
    let case = Case::new();
    fs::write(case.dir.path().join("CLAUDE.md"), "text").unwrap();
    assert!(matches!(case.judge(None), Ok(None)));
}

#[test]
fn question_shows_what_would_run_and_answer_is_remembered() {
    for (option, is_trusted) in [(TRUST, true), (RESTRICT, false)] {
        let case = Case::new();
        case.write("evil `x`\n# more");
        let question = case.ask();
        assert!(question.message.contains("`setting apiKeyHelper` in `.claude/settings.json`: `evil 'x'"));
        assert_eq!(question.message.lines().count(), 3);
        for answer in [Case::answer(&question, option), None] {
            let judged = case.judge(answer).unwrap();
            assert_eq!(judged.is_some(), is_trusted);
        }
        case.write("changed");
        assert_ne!(case.ask().topic, question.topic);
    }
}

#[test]
fn answer_for_other_settings_does_not_count() {
    let case = Case::new();
    case.write("one");
    let answer = Case::answer(&case.ask(), TRUST);
    case.write("two");
    assert!(matches!(case.judge(answer), Err(OpenError::Question(_))));
}

#[test]
fn folder_that_a_client_trusts_is_not_asked_about() {
    let mut case = Case::new();
    case.write("x");
    case.trusted = TrustedFolders::These(vec![case.dir.path().to_owned()]);
    assert!(matches!(case.judge(None), Ok(Some(_))));
}

#[test]
fn long_list_is_cut() {
    let case = Case::new();
    let folder = case.dir.path().join(".claude/agents");
    fs::create_dir_all(&folder).unwrap();
    for number in 0..25 {
        fs::write(folder.join(format!("{number}.md")), "x").unwrap();
    }
    assert!(case.ask().message.ends_with("- and 5 more\n"));
}
