// The view before a session exists. Nothing is created until the first message is sent.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

import { directoryPath, directoryUri } from '../format';
import type { Page } from '../page';
import { Composer } from './Composer';
import { FolderIcon, LanternIcon } from './Icons';

export function NewSession({ page }: { page: Page }) {
  /** Undefined until the user types; until then the host's default directory is shown and used. */
  const typed = useSignal<string | undefined>(undefined);
  const suggested = page.host.value?.defaultDirectory;
  const path = typed.value ?? (suggested ? directoryPath(suggested) : '');
  const uri = path.trim() === '' ? undefined : directoryUri(path);
  const wrong = path.trim() !== '' && uri === undefined;
  const agent = page.root.value?.agents[0];
  const online = page.status.value.kind === 'online';
  useEffect(() => {
    if (online) page.loadNewConfig();
  }, [online, agent?.provider]);

  return (
    <div class="conversation">
      <div class="center">
        <div class="welcome">
          <LanternIcon />
          <h1>What shall we work on?</h1>
          <p class="quiet">
            {agent ? `${agent.displayName} answers here.` : 'Looking for an agent on the host…'} The session starts with your first message
            and goes on when you close this page.
          </p>
          <label class="directory">
            <span class="directory-label">
              <FolderIcon /> Working directory
            </span>
            <input
              type="text"
              value={path}
              placeholder="/path/to/your/project"
              spellcheck={false}
              autocomplete="off"
              autocapitalize="off"
              aria-invalid={wrong}
              aria-describedby="directory-hint"
              onInput={(event) => (typed.value = event.currentTarget.value)}
            />
            <span id="directory-hint" class={wrong ? 'hint is-wrong' : 'hint'}>
              {wrong ? 'Please give the whole path, beginning with /' : 'A folder on the machine that runs the host.'}
            </span>
          </label>
        </div>
      </div>
      <Composer page={page} directory={uri} blocked={wrong ? 'The working directory is not a whole path' : undefined} />
    </div>
  );
}
