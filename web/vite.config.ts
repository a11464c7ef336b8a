import { defineConfig } from 'vitest/config';

export default defineConfig({
  // The page may be reached through a forwarded port or below a path, so no asset address is absolute.
  base: './',
  build: {
    target: 'es2022',
    outDir: 'dist',
    emptyOutDir: true,
    // The content security policy of the host forbids data: scripts and inline code, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  test: {
    environment: 'node',
    include: ['tests/unit/**/*.test.{ts,tsx}'],
    // Some tests wait for a socket on a machine that may be busy compiling.
    testTimeout: 20_000,
  },
});
