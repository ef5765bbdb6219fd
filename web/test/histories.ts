// Has the ledger write histories before the tests run, the same ones each time; SEED=n has it draw others, and COUNT=n so many.
import {execFileSync} from 'node:child_process'
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import type {TestProject} from 'vitest/node'

declare module 'vitest' {
  export interface ProvidedContext {
    histories: string
    seed: number
  }
}

export default function setup(project: TestProject) {
  const seed = Number(process.env.SEED ?? 1)
  const dir = mkdtempSync(join(tmpdir(), 'histories-')), file = join(dir, 'histories.json')
  const made = execFileSync('go', ['run', './test/histories', '-seed', String(seed), '-count', process.env.COUNT ?? '60'], {cwd: '..', maxBuffer: 1 << 30})
  writeFileSync(file, made)
  project.provide('histories', file)
  project.provide('seed', seed)
  return () => rmSync(dir, {recursive: true})
}
