// The copy buttons of code blocks. They are part of rendered Markdown, so one listener serves them all.

const SHOWN_MS = 1_500;

export function copyCode(event: MouseEvent): void {
  const button = event.target instanceof Element ? event.target.closest('button.copy') : null;
  const code = button?.closest('.code')?.querySelector('code')?.textContent;
  if (!button || code == null) return;
  const say = (text: string) => {
    button.textContent = text;
    setTimeout(() => (button.textContent = 'Copy'), SHOWN_MS);
  };
  // The clipboard is only available in a secure context.
  if (!navigator.clipboard) {
    say('Not possible here');
    return;
  }
  navigator.clipboard.writeText(code).then(
    () => say('Copied'),
    () => say('Not possible here'),
  );
}
