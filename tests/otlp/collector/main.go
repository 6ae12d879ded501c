// The OpenTelemetry collector with its receiver of OTLP over HTTP, and an exporter that writes what the receiver made of each
// request as a line of OTLP's JSON on standard output.
package main

import (
	"context"
	"log"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func writeLine(_ context.Context, metrics pmetric.Metrics) error {
	var marshaler pmetric.JSONMarshaler
	line, err := marshaler.MarshalMetrics(metrics)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(append(line, '\n'))
	return err
}

func newLines(ctx context.Context, settings exporter.Settings, config component.Config) (exporter.Metrics, error) {
	return exporterhelper.NewMetrics(ctx, settings, config, writeLine)
}

func components() (otelcol.Factories, error) {
	factories := otelcol.Factories{Telemetry: otelconftelemetry.NewFactory()}
	var err error
	if factories.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return factories, err
	}
	config := func() component.Config { return &struct{}{} }
	lines := exporter.NewFactory(component.MustNewType("lines"), config,
		exporter.WithMetrics(newLines, component.StabilityLevelStable))
	factories.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](lines)
	return factories, err
}

func main() {
	settings := otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Description: "OTLP to lines", Version: "0"},
		Factories: components,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{
				ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
				DefaultScheme:     "file",
			},
		},
	}
	if err := otelcol.NewCommand(settings).Execute(); err != nil {
		log.Fatal(err)
	}
}
