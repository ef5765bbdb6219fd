// The root of what dashboard.test.ts makes a JSON schema of: Grafana publishes its schema of dashboards as types.
import type {Dashboard} from '../node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen'

export interface File {
  dashboard: Dashboard
}
