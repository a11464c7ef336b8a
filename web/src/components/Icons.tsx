// Icons, drawn in the colour of the surrounding text.

import type { ComponentChildren } from 'preact';

function Icon({ children }: { children: ComponentChildren }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="1.6" aria-hidden="true">
      <g stroke-linecap="round" stroke-linejoin="round">
        {children}
      </g>
    </svg>
  );
}

export const LanternIcon = () => (
  <Icon>
    <path d="M7.8 5.2a2.2 2.2 0 0 1 4.4 0" />
    <path d="M6.6 6h6.8l.8 8.6a1 1 0 0 1-1 1.1H6.8a1 1 0 0 1-1-1.1z" />
    <path class="flame" d="M10 8.3c1.2 1.3 1.9 2.2 1.9 3.2a1.9 1.9 0 0 1-3.8 0c0-1 .7-1.9 1.9-3.2z" />
    <path d="M7 17.5h6" />
  </Icon>
);
export const PlusIcon = () => (
  <Icon>
    <path d="M10 4.5v11M4.5 10h11" />
  </Icon>
);
export const MenuIcon = () => (
  <Icon>
    <path d="M3.5 6h13M3.5 10h13M3.5 14h13" />
  </Icon>
);
export const CloseIcon = () => (
  <Icon>
    <path d="M5.5 5.5l9 9M14.5 5.5l-9 9" />
  </Icon>
);
export const TrashIcon = () => (
  <Icon>
    <path d="M4 6h12M8 6V4.5h4V6M5.5 6l.7 9.5h7.6l.7-9.5M8.5 9v3.5M11.5 9v3.5" />
  </Icon>
);
export const SendIcon = () => (
  <Icon>
    <path d="M10 15.5v-11M5.5 9L10 4.5 14.5 9" />
  </Icon>
);
export const StopIcon = () => (
  <Icon>
    <rect x="6" y="6" width="8" height="8" rx="1.5" fill="currentColor" />
  </Icon>
);
export const DownIcon = () => (
  <Icon>
    <path d="M10 4.5v11M5.5 11l4.5 4.5L14.5 11" />
  </Icon>
);
export const FolderIcon = () => (
  <Icon>
    <path d="M3 6.2c0-.7.5-1.2 1.2-1.2h3.3l1.7 1.8h6.6c.7 0 1.2.5 1.2 1.2v6.3c0 .7-.5 1.2-1.2 1.2H4.2c-.7 0-1.2-.5-1.2-1.2z" />
  </Icon>
);
export const ShieldIcon = () => (
  <Icon>
    <path d="M10 3l6 2.2v4.3c0 3.6-2.5 6.1-6 7.5-3.5-1.4-6-3.9-6-7.5V5.2z" />
  </Icon>
);
export const AlertIcon = () => (
  <Icon>
    <path d="M10 3.5l7 12.5H3z" />
    <path d="M10 8.3v3.4M10 13.8v.1" />
  </Icon>
);
export const DiffIcon = () => (
  <Icon>
    <path d="M10 3.5v6M7 6.5h6M7 15.5h6" />
  </Icon>
);
export const UpIcon = () => (
  <Icon>
    <path d="M5.5 12L10 7.5l4.5 4.5" />
  </Icon>
);
export const LowerIcon = () => (
  <Icon>
    <path d="M5.5 8l4.5 4.5L14.5 8" />
  </Icon>
);
export const EditIcon = () => (
  <Icon>
    <path d="M4.5 15.5l.8-3.2 7.6-7.6a1.2 1.2 0 0 1 1.7 0l.7.7a1.2 1.2 0 0 1 0 1.7l-7.6 7.6zM11.5 6.1l2.4 2.4" />
  </Icon>
);
export const QueueIcon = () => (
  <Icon>
    <path d="M4 5.5h12M4 10h7.5M4 14.5h7.5M15 10.5v5M12.5 13h5" />
  </Icon>
);
export const SteerIcon = () => (
  <Icon>
    <path d="M4 5v3.5a3 3 0 0 0 3 3h9M12.5 8l3.5 3.5-3.5 3.5" />
  </Icon>
);
export const TerminalIcon = () => (
  <Icon>
    <path d="M4.5 6l4 4-4 4M10.5 14.5h5" />
  </Icon>
);
export const RestartIcon = () => (
  <Icon>
    <path d="M15.5 8.2A6 6 0 1 0 16 11M15.8 4.5v3.9h-3.9" />
  </Icon>
);
export const ModelIcon = () => (
  <Icon>
    <path d="M10 3.5l1.5 4 4 1.5-4 1.5-1.5 4-1.5-4-4-1.5 4-1.5zM15.5 13.5v3M14 15h3" />
  </Icon>
);
