import {defineConfig} from 'vitest/config'

// The built page is committed and embedded in the server: names by content, and nothing that differs from build to build.
export default defineConfig({
  base: './',
  esbuild: {jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none'},
  build: {
    outDir: '../pkg/http/ui/dist',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    rollupOptions: {output: {manualChunks: undefined}},
  },
  test: {include: ['test/**/*.test.ts'], globalSetup: ['test/histories.ts'], testTimeout: 60_000},
})
