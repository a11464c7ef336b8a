import { readdir, readFile, readlink } from 'node:fs/promises';

/** Kills the runtime that works in a folder; the warden, its parent, stays. */
export async function killRuntime(folder) {
  let killed = 0;
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => '');
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (cwd !== folder || command === '' || command.includes('--control-fd')) continue;
    process.kill(Number(pid), 'SIGKILL');
    killed += 1;
  }
  if (killed === 0) throw new Error(`no runtime works in ${folder}`);
}
