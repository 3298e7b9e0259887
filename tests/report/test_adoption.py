"""The seven answers: derived, never canned."""

from dataclasses import replace

from specops.report.adoption import QUESTIONS, adoption_answers


def figures(data, topic):
    """One topic's figures as a dict."""
    return next(dict(a.figures) for a in adoption_answers(data) if a.topic == topic)


def test_all_seven_are_answered_in_order(report_data, empty_data):
    """A report without data answers too."""
    for data in (report_data, empty_data):
        assert [a.topic for a in adoption_answers(data)] == list(QUESTIONS)
        assert all(a.text and a.figures for a in adoption_answers(data))


def test_without_data_nothing_is_claimed(empty_data):
    """Every figure is "not measured" or an honest zero."""
    values = [value for a in adoption_answers(empty_data) for _, value in a.figures]

    assert all(set(v.replace("not measured", "").split()) <= {"/", "0", "of"} for v in values), values


def test_figures_follow_the_data(report_data):
    """Another detection, another answer."""
    later = replace(report_data, detection_index=report_data.detection_index + 10, reaction_s=1.5)

    assert figures(report_data, "recovery")["requests from shift to detection"] == "31"
    assert figures(later, "recovery")["requests from shift to detection"] == "41"
    assert figures(later, "recovery")["from deciding outcome to first request on plain"] == "1.5 s"


def test_an_undelivered_alert_is_not_counted(report_data):
    """Raised is not delivered."""
    lost = replace(report_data, alerts=(replace(report_data.alerts[0], delivered=False),))

    assert figures(report_data, "recovery")["alerts delivered"] == "1 of 1"
    assert figures(lost, "recovery")["alerts delivered"] == "0 of 1"


def test_energy_is_named_as_not_measured(report_data):
    """A missing figure is told, the neighbours stay."""
    operations = figures(report_data, "operations")

    assert operations["energy"] == "not measured"
    assert operations["peak memory, baseline / candidate"] == "410 / 455 MB"
