package main

import (
	"cmp"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// rules is what is read of a PrometheusRule.
type rules struct {
	Spec struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
}

// alertsPage has the alerts of manifests/monitoring.
func alertsPage() (string, error) {
	content, err := os.ReadFile("manifests/monitoring/rules.yaml")
	if err != nil {
		return "", err
	}
	var r rules
	if err := yaml.Unmarshal(content, &r); err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString("# Alerts\n\nThose of `manifests/monitoring/rules.yaml`. Each name leads to the page that says " +
		"what to do.\n\n")
	page.WriteString(table("alert", "severity", "for", "says", "expression"))
	for _, group := range r.Spec.Groups {
		for _, rule := range group.Rules {
			page.WriteString(row("["+rule.Alert+"](../runbooks/"+rule.Alert+".md)", rule.Labels["severity"],
				cmp.Or(rule.For, "0s"), cell(rule.Annotations["summary"]), "`"+strings.Join(strings.Fields(rule.Expr), " ")+"`"))
		}
	}
	return page.String(), nil
}
