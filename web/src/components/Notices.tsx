// Shows the notices until they are dismissed.

import type { Page } from '../page';
import { CloseIcon } from './Icons';

export function Notices({ page }: { page: Page }) {
  return (
    <div class="notices" role="alert">
      {page.notices.value.map((notice) => (
        <div class={`notice is-${notice.kind}`} key={notice.id}>
          <span>{notice.text}</span>
          <button type="button" class="icon-button" aria-label="Dismiss this message" onClick={() => page.dismiss(notice.id)}>
            <CloseIcon />
          </button>
        </div>
      ))}
    </div>
  );
}
